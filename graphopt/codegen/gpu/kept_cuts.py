"""Cuts on disk beside the compiled programs, so that the second start does not look for them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from graphopt import disk_cache
from graphopt.codegen.cache import compiler_hash
from graphopt.codegen.program import Program


def kept(
    programs: Sequence[Program], question: object, find: Callable[[], Mapping[str, Any]]
) -> Mapping[str, Any]:
    """What `find` has returned for these programs and this question, or returns now."""
    name = _name(programs, question)
    if (stored := disk_cache.load(name)) is not None:
        return json.loads(stored)
    cuts = find()
    disk_cache.store(name, json.dumps(cuts).encode())
    return cuts


def _name(programs: Sequence[Program], question: object) -> str:
    digest = hashlib.sha256(compiler_hash())
    for program in programs:
        for array in (program.code, program.constants, program.input_registers, program.output_registers):
            digest.update(repr(array.shape).encode() + array.tobytes())
    digest.update(repr(question).encode())
    return f"{digest.hexdigest()[:40]}.cut"
