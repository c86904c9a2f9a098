"""All arrays of a set of a graph, to compare two sets."""

import numpy as np

_NAMES = (
    *("ids", "estimate", "fixed", "marginalized", "held", "lower", "upper", "values", "sequence"),
    *("vertices", "measurement", "information", "kernel", "kernel_width", "level", "parameters"),
)


def columns_of(of_type) -> dict[str, np.ndarray]:
    """Of a vertex, edge or parameter set, by name."""
    return {name: of_type.look(name) for name in _NAMES if of_type.has(name)}
