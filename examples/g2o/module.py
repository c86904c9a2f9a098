"""The g2o module that a demo runs with: the first command-line argument, or graphopt.g2o."""

from __future__ import annotations

import importlib
import sys
from typing import Any


def g2o_module() -> Any:
    """`graphopt.g2o`, or the module named on the command line."""
    return importlib.import_module(sys.argv[1] if len(sys.argv) > 1 else "graphopt.g2o")
