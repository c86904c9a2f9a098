"""pycolmap 3.12 and 4.x under one set of names; a test of what this version lacks is skipped."""

from __future__ import annotations

from typing import Any

import pytest

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")


def need(place: Any, name: str) -> Any:
    """An attribute of pycolmap's, without which the test is skipped."""
    if not hasattr(place, name):
        pytest.skip(f"this pycolmap has no {name}")
    return getattr(place, name)


def need_field(options: Any, name: str, value: Any) -> None:
    """Set an option."""
    need(options, name)
    setattr(options, name, value)


def need_sensor_poses() -> None:
    """pycolmap 3.12 can read poses of sensors on rigs, and not set them."""
    need(pycolmap.Rig, "set_sensor_from_rig")


def ceres_of(options: Any) -> Any:
    """Where the options of Ceres are: in themselves before 4.0."""
    return getattr(options, "ceres", options)


def adjuster_for_covariances() -> Any:
    """The function that makes one."""
    return getattr(pycolmap, "create_default_ceres_bundle_adjuster", pycolmap.create_default_bundle_adjuster)


def ceres_summary(adjuster: Any) -> Any:
    """Solve; Ceres' summary."""
    summary = adjuster.solve()
    return getattr(summary, "ceres_summary", summary)
