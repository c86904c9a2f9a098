"""The problems: real graphs from the data folder, unpacked once, and generated ones of published sizes.

The data folder is `../shared/data` beside the checkout, or `$GRAPHOPT_SHARED/data`.
"""

from __future__ import annotations

import lzma
import os
import tempfile
from functools import cache
from pathlib import Path

import graphopt
from graphopt.evaluate import datasets
from graphopt.graph import Graph


def data_folder() -> Path:
    """Return the folder of real data sets; raises `FileNotFoundError` where there is none."""
    root = Path(os.environ.get("GRAPHOPT_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if not (root / "data").is_dir():
        raise FileNotFoundError(
            f"{root / 'data'}: the benchmarks need the real data sets; set GRAPHOPT_SHARED."
        )
    return root / "data"


def graph_of(name: str) -> Graph:
    """A graph file, a file of the data folder, or a synthetic problem of a published size."""
    if Path(name).exists():
        return graphopt.read(name)
    if "/" in name and (data_folder() / name).exists():
        return graphopt.read(data_folder() / name)
    return datasets.published(name)


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="graphopt-bench-")


@cache
def unpacked(name: str) -> Path:
    """Return the path of a data file, unpacked into a scratch folder if it is compressed."""
    source = data_folder() / name
    if source.suffix != ".xz":
        return source
    target = Path(_scratch().name) / source.stem
    target.write_bytes(lzma.decompress(source.read_bytes()))
    return target
