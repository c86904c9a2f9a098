"""Public data sets by name: where their publishers keep them, and where the copies of this machine are.

`registry.toml` lists collections (BAL, EuRoC, ...) and their items. A copy is looked for in `$GRAPHOPT_DATA`
(one or several folders, searched to any depth) and in the cache folder that `fetch` fills.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
import string
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from graphopt.disk_cache import cache_directory
from graphopt.errors import OptionError

tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
_ARCHIVES = (".zip", ".tar")
_COMPRESSED = (".bz2", ".gz", ".xz", *_ARCHIVES)


@dataclass(frozen=True)
class Collection:
    """A family of data sets with one publisher."""

    name: str
    """As in `graphopt datasets info NAME`."""
    title: str
    homepage: str
    licence: str
    citation: str
    format: str
    """What reads it: BAL, g2o, COLMAP, EuRoC, TUM-VI, KITTI."""


@dataclass(frozen=True)
class Dataset:
    """One file of a collection that can be downloaded."""

    collection: Collection
    name: str
    url: str
    hash_url: str | None = None
    """Where the publisher keeps the MD5 checksum, if there is one."""

    @property
    def file_name(self) -> str:
        """Name of the download."""
        return self.url.rsplit("/", 1)[-1]

    @property
    def stem(self) -> str:
        """Name of the download without the endings of compression and archives."""
        return _without_compression(self.file_name)

    def path(self) -> Path | None:
        """The copy on this machine, a file or an unpacked folder; None if there is none."""
        return next(self._copies(), None)

    @property
    def is_archive(self) -> bool:
        """The download is a zip or tar file with a folder's content."""
        return self.file_name.endswith(_ARCHIVES)

    def destination(self) -> Path:
        """Where `fetch` puts it: the download, or the folder that its archive is unpacked to."""
        return data_cache() / self.collection.name / (self.stem if self.is_archive else self.file_name)

    def checksum_file(self) -> Path:
        """What `fetch` keeps beside the data: the SHA-256 of the first download, as `sha256sum` writes it."""
        return data_cache() / self.collection.name / f"{self.file_name}.sha256"

    def recorded_checksum(self) -> str | None:
        """SHA-256 of the first download, 64 hexadecimal digits; None if there was none."""
        try:
            words = self.checksum_file().read_text(encoding="ascii").split()
        except FileNotFoundError:
            return None
        if not words or not re.fullmatch(r"[0-9a-f]{64}", words[0]):
            raise OptionError(
                f"{self.checksum_file()}: expected 64 hexadecimal digits and a file's name. "
                "Remove the file to trust the next download."
            )
        return words[0]

    def verification(self) -> str:
        """What says that the copy on this machine is the publisher's file, for people to read."""
        copy = self.path()
        if copy is not None and copy != self.destination():
            return "not verified (a copy that fetch did not make)"
        if self.hash_url is not None:
            return f"MD5 at {self.hash_url}"
        if (recorded := self.recorded_checksum()) is not None:
            return f"not verified by the publisher; SHA-256 of the first download here: {recorded}"
        return "not verified (the publisher states no checksum; that of the first download will be kept)"

    def _copies(self) -> Iterator[Path]:
        if self.destination().exists():
            yield self.destination()
        names = (self.file_name, self.stem, *(f"{self.stem}{ending}" for ending in _COMPRESSED), self.name)
        present = files_below(tuple(data_folders()))
        yield from (present[name] for name in names if name in present)


def data_cache() -> Path:
    """Folder that downloads go to: `data` in the cache folder (see `graphopt.disk_cache`)."""
    cache = cache_directory()
    if cache is None:
        raise OptionError(
            "There is no folder to keep data sets in: GRAPHOPT_CACHE_DIR is empty, or there is no home. "
            "Set GRAPHOPT_CACHE_DIR to a folder, or GRAPHOPT_DATA to one that has the data."
        )
    return cache / "data"


def data_folders() -> list[Path]:
    """Folders of $GRAPHOPT_DATA; `OptionError` names one that is missing."""
    folders = [Path(word) for word in os.environ.get("GRAPHOPT_DATA", "").split(os.pathsep) if word]
    for folder in folders:
        if not folder.is_dir():
            raise OptionError(f"GRAPHOPT_DATA names {folder}, which is no folder.")
    return folders


@functools.lru_cache(maxsize=1)
def files_below(roots: tuple[Path, ...]) -> dict[str, Path]:
    """Files and folders below some folders by name; the first of a name."""
    paths: dict[str, Path] = {}
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders.sort()
            for name in sorted((*files, *folders)):
                paths.setdefault(name, Path(folder, name))
    return paths


@functools.lru_cache(maxsize=1)
def datasets() -> dict[str, Dataset]:
    """All data sets by name."""
    by_name: dict[str, Dataset] = {}
    for name, table in tomllib.loads(_registry_text()).items():
        collection = Collection(
            name, *(table[field] for field in ("title", "homepage", "licence", "citation", "format"))
        )
        for item in _items(table):
            dataset = Dataset(
                collection,
                table["name"].format(**item),
                table["url"].format(**item),
                hash_url=table["hash_url"].format(**item) if "hash_url" in table else None,
            )
            by_name[dataset.name] = dataset
    return by_name


def collections() -> dict[str, Collection]:
    """All collections by name."""
    return {dataset.collection.name: dataset.collection for dataset in datasets().values()}


def find(name: str) -> Dataset:
    """The data set of a name, of its file's name, or of a part of its name that only it has.

    "ladybug-49" is ladybug-49-7776, "MH_01" is MH_01_easy. `OptionError` with the nearest names otherwise.
    """
    known = datasets()
    if name in known:
        return known[name]
    plain = _without_compression(name)
    same_file = [
        dataset for dataset in known.values() if plain in (dataset.stem, dataset.stem.removesuffix(".txt"))
    ]
    starts = [known[key] for key in known if _starts_with(key, name)]
    if same_file:  # of several publishers the first one's
        return same_file[0]
    if len(starts) == 1:
        return starts[0]
    if starts:
        raise OptionError(f"'{name}' may be any of {', '.join(start.name for start in starts[:8])}.")
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise OptionError(f"There is no data set '{name}'.{hint} See: graphopt datasets list.")


def missing_message(dataset: Dataset) -> str:
    """What to do about a data set that is not on this machine."""
    put = "unpack it to" if dataset.is_archive else "put it at"
    return (
        f"{dataset.name} is not on this machine. Fetch it with: graphopt datasets fetch {dataset.name}\n"
        f"Without a network: download {dataset.url} elsewhere and {put} {dataset.destination()}, "
        "or set GRAPHOPT_DATA to a folder that holds it."
    )


def _starts_with(key: str, name: str) -> bool:
    """Whether a name is the beginning of a data set's, up to a border of words."""
    rest = key.lower().removeprefix(name.lower())
    return rest != key.lower() and (not rest or rest[0] in "-_" or rest[0] in string.ascii_lowercase)


def _items(table: dict[str, Any]) -> Iterator[dict[str, str]]:
    for outer, groups in table["items"].items():
        for group, lists in groups.items():
            for inner, values in lists.items():
                for value in values:
                    yield {outer: group, inner: str(value)}


def _without_compression(name: str) -> str:
    for ending in _COMPRESSED:
        name = name.removesuffix(ending)
    return name


def _registry_text() -> str:
    """The registry: `datasets/` of the source tree, or beside this module where the package is installed."""
    here = Path(__file__).resolve().parent
    root = here.parents[2]
    path = (root / "datasets" if (root / "pyproject.toml").is_file() else here) / "registry.toml"
    if path.is_file():
        return path.read_text(encoding="utf-8")
    raise OptionError(
        f"{here / 'registry.toml'} is missing: the installation is damaged. Reinstall graphopt."
    )
