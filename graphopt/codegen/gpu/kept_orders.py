"""What was found for a program, on disk beside the compiled ones: the second start does not look for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from graphopt import disk_cache
from graphopt.codegen.cache import compiler_hash


def kept(question: object, find: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """What `find` has returned for this question, or returns now."""
    name = f"{hashlib.sha256(compiler_hash() + repr(question).encode()).hexdigest()[:40]}.order"
    if (stored := disk_cache.load(name)) is not None:
        return json.loads(stored)
    found = find()
    disk_cache.store(name, json.dumps(found).encode())
    return found
