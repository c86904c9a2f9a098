"""Downloading data sets: with progress, resumed after an interruption, verified, whole or not at all.

pooch verifies and places the file; the transfer is ours because pooch's starts anew each time.
"""

from __future__ import annotations

import fcntl
import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any

from graphopt.errors import GraphOptError, OptionError
from graphopt.evaluate.datasets.registry import Dataset, missing_message
from graphopt.temporary_files import temporary_file, temporary_folder

_CHUNK = 1 << 20
_TIMEOUT = 30.0  # [s] without an answer

Progress = Callable[[int, "int | None"], None]
"""Called with the bytes that are there and the bytes in all, if known."""


class DownloadError(GraphOptError, OSError):
    """A download failed or is damaged. What arrived is kept, and the next try goes on from there."""


def fetch(dataset: Dataset, progress: Progress | None = None) -> Path:
    """Return the copy of a data set, downloaded if there is none on this machine yet; archives are unpacked.

    A download has to match the publisher's checksum; where there is none, that of the first download, which
    is kept beside the data (`Dataset.checksum_file`).
    Raises `DownloadError` without a network, where the server refuses, or where the checksum differs.
    """
    if (present := dataset.path()) is not None:
        return present
    pooch = _pooch()
    file = dataset.destination().with_name(dataset.file_name)
    part = file.with_name(f"{file.name}.part")
    recorded = dataset.recorded_checksum()
    try:
        published = _published_hash(dataset)
        expected = published or (f"sha256:{recorded}" if recorded else None)
        pooch.retrieve(
            dataset.url, expected, fname=file.name, path=file.parent, downloader=_Resuming(part, progress)
        )
    except ValueError as error:  # the checksum; what was discarded is pooch's copy
        raise DownloadError(_mismatch(dataset, recorded)) from error
    except OSError as error:
        raise DownloadError(f"{dataset.url}: {error}\n{missing_message(dataset)}") from error
    checksum = pooch.file_hash(str(file), alg="sha256")
    if dataset.is_archive:
        _unpack(file, dataset.destination())
    if checksum != recorded:
        _record(dataset.checksum_file(), f"{checksum}  {file.name}\n")
    return dataset.destination()


def _mismatch(dataset: Dataset, recorded: str | None) -> str:
    if dataset.hash_url is not None or recorded is None:
        return (
            f"{dataset.url}: the download does not match the publisher's checksum at {dataset.hash_url}. "
            "It was discarded; fetch it again."
        )
    return (
        f"{dataset.url}: the download differs from the first one on this machine, whose checksum is in "
        f"{dataset.checksum_file()}. It was discarded: it is damaged, or the file has changed. "
        "Fetch it again; if the publisher has announced a new version, remove that file first."
    )


def _record(path: Path, text: str) -> None:
    with temporary_file(path) as (file, name):
        file.write(text.encode())
        file.flush()
        os.replace(name, path)


class _Resuming:
    """A downloader for pooch that goes on where an interrupted download of the same version ended.

    The version is the server's: its ETag, or the time of the last change, kept beside the part. Where it
    states neither, the download starts anew.
    """

    def __init__(self, part: Path, progress: Progress | None) -> None:
        self._part = part
        self._version = part.with_name(f"{part.name}.version")
        self._progress = progress

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        self._part.parent.mkdir(parents=True, exist_ok=True)
        with self._part.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OSError("another process is fetching it now; wait until it is done") from None
            self._transfer(url, file)
            shutil.move(self._part, output_file)
        self._version.unlink(missing_ok=True)

    def _transfer(self, url: str, file: IO[bytes]) -> None:
        import requests

        headers = {"Accept-Encoding": "identity"}
        done = os.fstat(file.fileno()).st_size
        if done and self._version.is_file():
            headers |= {"Range": f"bytes={done}-", "If-Range": self._version.read_text(encoding="latin-1")}
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
            content_range = answer.headers.get("Content-Range", "")
            if answer.status_code == 416 and content_range == f"bytes */{done}":  # nothing is left to send
                return
            if answer.status_code == 416 or (
                answer.status_code == 206 and not content_range.startswith(f"bytes {done}-")
            ):
                file.truncate(0)
                raise OSError(f"the server sent another part ({content_range}); fetch again from the start")
            answer.raise_for_status()
            if answer.status_code != 206:
                done = 0
                file.truncate(0)
                self._note_version(answer.headers)
            length = answer.headers.get("Content-Length")
            total = done + int(length) if length else None
            for piece in answer.iter_content(_CHUNK):
                file.write(piece)
                done += len(piece)
                if self._progress is not None:
                    self._progress(done, total)
            file.flush()
        if total is not None and done < total:
            raise OSError(
                f"the connection ended after {done} of {total} bytes; fetch again to go on from there"
            )

    def _note_version(self, headers: Mapping[str, str]) -> None:
        tag = headers.get("ETag", "")
        version = tag if tag.startswith('"') else headers.get("Last-Modified", "")  # not a weak tag
        if version:
            self._version.write_text(version, encoding="latin-1")
        else:
            self._version.unlink(missing_ok=True)


_DAMAGED = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError),
    *(EOFError, OSError, ValueError, RuntimeError),
)


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack beside the folder, then rename: whole or not at all. The archive is removed afterwards."""
    with temporary_folder(folder) as unpacked:
        try:
            if archive.suffix == ".zip":
                with zipfile.ZipFile(archive) as packed:
                    for member in packed.namelist():
                        _refuse_outside(member)
                    packed.extractall(unpacked)
            else:
                _unpack_tar(archive, unpacked)
        except _DAMAGED as error:
            raise DownloadError(
                f"{archive}: it cannot be unpacked ({error}). Remove it and fetch again."
            ) from error
        unpacked.chmod(0o755)
        unpacked.rename(folder)
    archive.unlink()


def _unpack_tar(archive: Path, folder: Path) -> None:
    """Regular files and folders only; the filter of newer Pythons takes away set-uid bits and owners, too."""
    with tarfile.open(archive) as packed:
        members = packed.getmembers()
        while packed.fileobj.read(_CHUNK):  # to the end: there is the checksum of what was compressed
            pass
        for member in members:
            _refuse_outside(member.name)
            if not (member.isreg() or member.isdir()):
                raise ValueError(f"'{member.name}' is neither a file nor a folder")
            member.mode = 0o755 if member.isdir() else 0o644
        options: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        packed.extractall(folder, members, **options)


def _refuse_outside(name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"'{name}' leads out of the folder")


def _published_hash(dataset: Dataset) -> str | None:
    """The checksum that the publisher keeps beside the file; None if there is none."""
    if dataset.hash_url is None:
        return None
    import requests

    answer = requests.get(dataset.hash_url, timeout=_TIMEOUT)
    answer.raise_for_status()
    words = answer.text.split()
    return f"md5:{words[0]}" if words else None


def _pooch() -> Any:
    try:
        import pooch
    except ModuleNotFoundError:
        raise OptionError(
            "Downloads need pooch, which is not installed. Install it with: pip install 'graphopt[eval]'"
        ) from None
    pooch.get_logger().setLevel("WARNING")
    return pooch
