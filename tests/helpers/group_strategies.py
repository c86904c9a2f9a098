"""Elements of groups for hypothesis: a test that fails ends at few numbers other than 0."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from graphopt.geometry import GROUPS, SE3, SO2, product_group, vector_group

SHAPES = [(), (4,), (2, 3)]
EVERY_GROUP = [*GROUPS, vector_group(3), product_group("Product", pose=SE3, bias=2, turn=SO2)]
LARGEST = 1.7
"""Of a coordinate: three of them turn by less than pi."""


def tangents(group: Any, shape: tuple[int, ...]) -> st.SearchStrategy[np.ndarray]:
    """(*shape, tangent_dim) of any size, down to where squares vanish."""
    return arrays(np.float64, (*shape, group.tangent_dim), elements=st.floats(-LARGEST, LARGEST))


def elements(group: Any, shape: tuple[int, ...]) -> st.SearchStrategy[Any]:
    """Of any rotation."""
    return tangents(group, shape).map(group.exp)
