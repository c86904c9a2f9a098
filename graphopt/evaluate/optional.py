"""Packages that an evaluation can use and that graphopt does not need."""

from __future__ import annotations

import importlib
from typing import Any

from graphopt.errors import OptionError


def load(name: str, package: str | None = None) -> Any:
    """A module, or `OptionError` with how to install its package (the module's name if not said)."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        distribution = package or name
        raise OptionError(
            f"{name} cannot be imported ({error}). Install it with: pip install {distribution}"
        ) from None
