"""A solve as a differentiable function of jax arrays, also within `jax.jit` and `jax.vmap`.

    estimates = graphopt.jax.solve(graph, {"EDGE_SE2.information": information})
    loss = ((estimates["VERTEX_SE2"] - truth) ** 2).sum()

Computed is on the host in float64. Estimates have jax's widest float: float64 with
`jax.config.update("jax_enable_x64", True)`, otherwise float32, which costs digits. Derivatives of derivatives
and forward mode are not defined.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphopt.derivatives.call import Call, call_of
from graphopt.derivatives.problem import Doubts
from graphopt.graph import Graph

try:
    import jax
    import jax.numpy as jnp
    from jax.core import Tracer
except ImportError as error:
    raise ImportError(
        "graphopt.jax needs JAX, which is not installed: pip install 'graphopt[jax]'."
    ) from error

__all__ = ["solve"]


def solve(graph: Graph, inputs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """The optimum of `graph` with these inputs, through which gradients flow back to them.

    Inputs and options as of `graphopt.torch.solve`. Returns the estimates by tag of the vertex type
    (n, storage_dim), of a batch (b, n, storage_dim).

    Errors are raised as there; within `jax.jit` jax wraps them. The graph must not be changed while compiled
    functions that solve it are in use.
    """
    arrays = {name: jnp.asarray(value) for name, value in inputs.items()}
    call = call_of(graph, {name: array.shape for name, array in arrays.items()}, options)
    shaped = [
        jnp.broadcast_to(array, full).reshape(whole)
        for array, full, whole in zip(arrays.values(), call.broadcast, call.reshape, strict=True)
    ]
    found = _differentiable(call)(*shaped)
    return {
        tag: estimate.reshape(shape)
        for tag, estimate, shape in zip(call.problem.tags, found, call.output_shapes, strict=True)
    }


def _differentiable(call: Call) -> Any:
    """The function of arrays that have the shapes of the graph's."""
    problem = call.problem
    widest = jax.dtypes.canonicalize_dtype(np.float64)
    rows = [vertex_set.look("estimate").shape for vertex_set in problem.graph.vertex_sets]
    results = (*(jax.ShapeDtypeStruct(shape, widest) for shape in rows), jax.ShapeDtypeStruct((3,), widest))

    def forward(*values: Any) -> tuple[np.ndarray, ...]:
        solved = problem.solve([np.asarray(value, np.float64) for value in values])
        found = (*solved.estimates, solved.doubts.numbers())
        return tuple(array.astype(widest) for array in found)

    def backward(values: Any, found: Any, cotangents: Any) -> tuple[np.ndarray, ...]:
        *estimates, numbers = (np.asarray(array, np.float64) for array in found)
        given = [np.asarray(cotangent, np.float64) for cotangent in cotangents]
        inputs = [np.asarray(value, np.float64) for value in values]
        gradients = problem.vjp(inputs, estimates, Doubts.of_numbers(numbers), given)
        return tuple(gradient.astype(value.dtype) for gradient, value in zip(gradients, values, strict=True))

    def solved(*values: Any) -> Any:
        return _called(forward, results, *values)

    @jax.custom_vjp
    def function(*values: Any) -> Any:
        return solved(*values)[:-1]

    def remember(*values: Any) -> Any:
        found = solved(*values)
        return found[:-1], (values, found)

    def pull(saved: Any, cotangents: Any) -> Any:
        values, found = saved
        shapes = tuple(jax.ShapeDtypeStruct(value.shape, value.dtype) for value in values)
        return tuple(_called(backward, shapes, values, found, tuple(cotangents)))

    function.defvjp(remember, pull)
    return function


def _called(function: Any, results: Any, *arguments: Any) -> Any:
    """On the host: at once where there are numbers, so that errors are our own, else when jax runs it."""
    if any(isinstance(leaf, Tracer) for leaf in jax.tree_util.tree_leaves(arguments)):
        return jax.pure_callback(function, results, *arguments, vmap_method="sequential")
    return tuple(jnp.asarray(array) for array in function(*arguments))
