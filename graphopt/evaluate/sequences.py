"""Image sequences: EuRoC, TUM-VI, KITTI, run by the pipeline of `slam_bridge`.

The runner calls `slam_bridge.evaluation.entry:evaluate` by its name; this package imports nothing of it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from graphopt.errors import OptionError
from graphopt.evaluate.published import published
from graphopt.evaluate.runner import Unit

MODULE = "slam_bridge.evaluation.entry"


def default_mode(kind: str) -> str:
    """KITTI has no samples of an IMU that would do."""
    return "stereo" if kind == "kitti" else "stereo-inertial"


def find(kind: str, root: str, names: list[str] | None) -> dict[str, str]:
    """Folders of sequences by name; errors say what was expected where."""
    try:
        module = importlib.import_module(MODULE)
    except ImportError as error:
        raise OptionError(f"graphopt eval {kind} needs the package slam_bridge: {error}.") from error
    return module.list_sequences(kind, root, names)


def units(
    kind: str,
    sequences: dict[str, str],
    modes: list[str],
    configurations: list[str],
    options: dict[str, Any],
    folder: Path,
    live: int | None = None,
) -> list[Unit]:
    """One unit per sequence, mode and configuration; keys name what there is more than one of."""
    units_of_all = []
    for name, path in sequences.items():
        for mode in modes:
            for configuration in configurations:
                parts = [name]
                parts += [mode] if len(modes) > 1 else []
                parts += [configuration] if len(configurations) > 1 else []
                key = " ".join(parts)
                arguments = {
                    "kind": kind,
                    "name": key,
                    "folder": path,
                    "output": str(folder),
                    "mode": mode,
                    "configuration": None if configuration == "auto" else configuration,
                    "published": published(kind, name, mode),
                    "live": live,
                    **options,
                }
                units_of_all.append(Unit(key, f"{MODULE}:evaluate", arguments, measures_process=True))
    return units_of_all
