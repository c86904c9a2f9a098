"""Cuts on disk beside the compiled programs, so that the second start does not look for them again."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from graphopt.codegen.cache import compiler_hash
from graphopt.codegen.program import Program
from graphopt.disk_cache import cache_directory, write_atomically


def kept(
    programs: Sequence[Program], question: object, find: Callable[[], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """What `find` has returned for these programs and this question, or returns now.

    A file that cannot be read is written anew; a folder that cannot be written is not used.
    """
    path = _path(programs, question)
    if path is None:
        return find()
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text())
    found = find()
    with contextlib.suppress(OSError):
        write_atomically(path, json.dumps(found).encode())
    return found


def _path(programs: Sequence[Program], question: object) -> Path | None:
    folder = cache_directory()
    if folder is None:
        return None
    digest = hashlib.sha256(compiler_hash())
    for program in programs:
        for array in (program.code, program.constants, program.input_registers, program.output_registers):
            digest.update(repr(array.shape).encode() + array.tobytes())
    digest.update(repr(question).encode())
    return folder / f"{digest.hexdigest()[:40]}.cut"
