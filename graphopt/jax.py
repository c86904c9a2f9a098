"""A solve as a differentiable function of jax arrays, and edges whose residual jax computes.

    estimates = graphopt.jax.solve(graph, {"EDGE_SE2.information": information})
    loss = ((estimates["VERTEX_SE2"] - truth) ** 2).sum()

`solve` may stand within `jax.jit` and `jax.vmap`. Computed is in float64, by the solver's device: a batch on
the GPU that solves it does not come to the host, but within `jax.jit`, which hands over arrays of the host.
Estimates have jax's widest float: float64 with `jax.config.update("jax_enable_x64", True)`, otherwise
float32, which costs digits.
Derivatives of derivatives and forward mode are not defined.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.derivatives.call import Call, call_of
from graphopt.derivatives.memory import Memory
from graphopt.derivatives.refine import Doubts
from graphopt.errors import OptionError, ShapeError
from graphopt.foreign_arrays import CUDA, on_cuda
from graphopt.graph import Graph
from graphopt.types.base import EdgeType, ParameterType, VertexType
from graphopt.types.identity import home_of
from graphopt.types.outside import outside_edge_type
from graphopt.types.outside_functions import OnDevice, operations

try:
    import jax
    import jax.numpy as jnp
    from jax.core import Tracer
except ImportError as error:
    raise ImportError(
        "graphopt.jax needs JAX, which is not installed: pip install 'graphopt[jax]'."
    ) from error

__all__ = ["edge_type", "solve"]


def solve(graph: Graph, inputs: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """The optimum of `graph` with these inputs, through which gradients flow back to them.

    Inputs and options as of `graphopt.torch.solve`. Returns the estimates by tag of the vertex type
    (n, storage_dim), of a batch (b, n, storage_dim).

    Errors are raised as there; within `jax.jit` jax wraps them. The graph must not be changed while compiled
    functions that solve it are in use.
    """
    arrays = {name: jnp.asarray(value) for name, value in inputs.items()}
    for name, array in arrays.items():
        if array.dtype.kind in "cb":
            raise ShapeError(f"{name} has dtype {array.dtype}, expected floating point numbers.")
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
    results = (
        *(jax.ShapeDtypeStruct(shape, widest) for shape in problem.shapes),
        jax.ShapeDtypeStruct((3,), widest),
    )

    def forward(*values: Any) -> tuple[Any, ...]:
        solved, _ = Memory(problem, values, _CALLERS).solve(values)
        found = *solved.estimates, solved.doubts.numbers()
        return tuple(_as(array, result) for array, result in zip(found, results, strict=True))

    def backward(values: Any, found: Any, cotangents: Any) -> tuple[Any, ...]:
        *estimates, numbers = found
        memory = Memory(problem, (*values, *estimates, *cotangents), _CALLERS)
        gradients = memory.vjp(values, estimates, None, Doubts.of_numbers(numbers), cotangents)
        return tuple(_as(array, value) for array, value in zip(gradients, values, strict=True))

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


def _as(array: Any, like: Any) -> Any:
    """An array of the host, or of CUDA's, of another one's shape and precision."""
    made = array if isinstance(array, np.ndarray) else jnp.from_dlpack(array)
    return made.reshape(like.shape).astype(like.dtype)


class _Callers:
    """Implements `derivatives.memory.CallersLibrary`."""

    def ordinal(self, array: Any) -> int | None:
        """CUDA's device of a float64 array, None of others."""
        if not isinstance(array, jax.Array) or array.dtype != np.float64:
            return None
        kind, number = array.__dlpack_device__()  # type: ignore[attr-defined]
        return int(number) if int(kind) == CUDA else None

    def dense(self, array: Any) -> Any:
        """As it is."""
        return array

    def is_finite(self, array: Any) -> bool:
        """All numbers are."""
        return bool(jnp.isfinite(array).all())

    def host(self, array: Any) -> np.ndarray:
        """As float64."""
        return np.asarray(array, np.float64)


_CALLERS = _Callers()


def edge_type(
    *,
    tag: str,
    vertices: Sequence[str | VertexType],
    residual_dim: int,
    measurement_dim: int = 0,
    parameters: Sequence[str | ParameterType] = (),
    jacobian: str = "reverse",
) -> Callable[[Callable[..., Any]], EdgeType]:
    """Decorator: an edge type whose residual a function of jax arrays computes, of all its edges at once.

    The function takes and returns what that of `graphopt.torch.edge_type` does, as float64 arrays, and is
    compiled (`jax.jit`). jacobian: "reverse" differentiates by jax, "differences" by central differences.
    """
    if jacobian not in ("reverse", "differences"):
        raise OptionError(f"jacobian is {jacobian!r}, expected 'reverse' or 'differences'.")
    count = len(vertices)

    def decorate(function: Callable[..., Any]) -> EdgeType:
        compiled = jax.jit(function)

        @jax.jit
        def differentiated(*arrays: Any) -> Any:
            residual, pull = jax.vjp(lambda *moving: function(*moving, *arrays[count:]), *arrays[:count])
            one_hot = jnp.eye(residual.shape[-1], dtype=residual.dtype)[:, None, :]
            cotangents = jnp.broadcast_to(one_hot, (residual.shape[-1], *residual.shape))
            return residual, [jnp.moveaxis(block, 0, 1) for block in jax.vmap(pull)(cotangents)]

        def here(*arrays: np.ndarray) -> np.ndarray:
            with _double():
                return np.asarray(compiled(*arrays))

        def linearize_here(*arrays: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
            with _double():
                residual, blocks = differentiated(*arrays)
                return np.asarray(residual), [np.asarray(block) for block in blocks]

        here.__doc__ = function.__doc__
        differentiates = jacobian == "reverse"
        return outside_edge_type(
            here,
            linearize_here if differentiates else None,
            tag=tag,
            vertices=vertices,
            residual_dim=residual_dim,
            measurement_dim=measurement_dim,
            parameters=parameters,
            home=home_of(function),
            on_device=OnDevice(_LIBRARY, compiled, differentiated) if differentiates else None,
        )

    return decorate


def _double() -> Any:
    """float64 within it, whatever the program has configured."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    return importlib.import_module("jax.experimental").enable_x64()  # of earlier versions


class _Arrays:
    """Implements `types.outside_functions.Library` on jax's default device."""

    def __init__(self) -> None:
        self.functions = operations(jnp, lambda array: array.astype(jnp.float64))

    def ordinal(self) -> int | None:
        """Of the device, None: it is none of CUDA's."""
        if jax.default_backend() not in ("gpu", "cuda"):
            return None
        kind, number = jnp.zeros(1).__dlpack_device__()  # type: ignore[attr-defined]
        return int(number) if int(kind) == CUDA else None

    def active(self) -> Any:
        """In float64."""
        return _double()

    def upload(self, array: Any) -> Any:
        """An array of numpy's, or a number, there."""
        with _double():
            return jnp.asarray(array)

    def einsum(self, subscripts: str, *arrays: Any) -> Any:
        """`numpy.einsum`."""
        return jnp.einsum(subscripts, *arrays)

    def concatenate(self, arrays: Sequence[Any]) -> Any:
        """One after another."""
        return jnp.concatenate(list(arrays))

    def stack(self, arrays: Sequence[Any]) -> Any:
        """As columns."""
        return jnp.stack(list(arrays), axis=1)

    def of(self, array: Any) -> Any:
        """Over the same memory."""
        return jnp.from_dlpack(array)

    def numbers(self, array: Any) -> Any:
        """Where they are."""
        return on_cuda(array)


_LIBRARY = _Arrays()
