"""Downloading data sets: with progress, resumed after an interruption, verified, whole or not at all.

pooch verifies and places the file; the transfer is ours because pooch's starts anew each time.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from graphopt.datasets.registry import Dataset, missing_message
from graphopt.errors import GraphOptError, OptionError

_CHUNK = 1 << 20
_TIMEOUT = 30.0  # [s] without an answer

Progress = Callable[[int, "int | None"], None]
"""Called with the bytes that are there and the bytes in all, if known."""


class DownloadError(GraphOptError, OSError):
    """A download failed or is damaged. What arrived is kept, and the next try goes on from there."""


def fetch(dataset: Dataset, progress: Progress | None = None) -> Path:
    """Return the copy of a data set, downloaded if there is none on this machine yet; archives are unpacked.

    Raises `DownloadError` without a network, where the server refuses, or where the checksum differs.
    """
    if (present := dataset.path()) is not None:
        return present
    pooch = _pooch()
    file = dataset.destination().with_name(dataset.file_name)
    part = file.with_name(f"{file.name}.part")
    try:
        expected = dataset.hash or _published_hash(dataset)
        pooch.retrieve(
            dataset.url, expected, fname=file.name, path=file.parent, downloader=_Resuming(part, progress)
        )
    except ValueError as error:  # the checksum; what was discarded is pooch's copy
        raise DownloadError(
            f"{dataset.url}: the download is damaged ({error}). It was discarded; fetch it again."
        ) from error
    except OSError as error:
        raise DownloadError(f"{dataset.url}: {error}\n{missing_message(dataset)}") from error
    if dataset.is_archive:
        _unpack(file, dataset.destination())
    return dataset.destination()


class _Resuming:
    """A downloader for pooch that goes on where an interrupted download ended."""

    def __init__(self, part: Path, progress: Progress | None) -> None:
        self._part = part
        self._progress = progress

    def __call__(self, url: str, output_file: Any, pooch: Any, check_only: bool = False) -> None:
        self._part.parent.mkdir(parents=True, exist_ok=True)
        self._transfer(url)
        shutil.move(self._part, output_file)

    def _transfer(self, url: str) -> None:
        import requests

        done = self._part.stat().st_size if self._part.exists() else 0
        headers = {"Range": f"bytes={done}-"} if done else {}
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as answer:
            if answer.status_code == 416:  # nothing is left to send
                return
            answer.raise_for_status()
            if answer.status_code != 206:
                done = 0
            length = answer.headers.get("Content-Length")
            total = done + int(length) if length else None
            with self._part.open("ab" if done else "wb") as file:
                for piece in answer.iter_content(_CHUNK):
                    file.write(piece)
                    done += len(piece)
                    if self._progress is not None:
                        self._progress(done, total)
        if total is not None and done < total:
            raise OSError(
                f"the connection ended after {done} of {total} bytes; fetch again to go on from there"
            )


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack beside the folder, then rename: whole or not at all. The archive is removed afterwards."""
    unpacked = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(unpacked, ignore_errors=True)
    try:
        shutil.unpack_archive(archive, unpacked)
    except (shutil.ReadError, OSError, ValueError) as error:
        shutil.rmtree(unpacked, ignore_errors=True)
        raise DownloadError(
            f"{archive}: it cannot be unpacked ({error}). Remove it and fetch again."
        ) from error
    unpacked.rename(folder)
    archive.unlink()


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
