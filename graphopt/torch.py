"""A solve as a differentiable function of torch tensors, and edges whose residual torch computes.

    solution = graphopt.torch.solve(graph, {"EDGE_SE2.information": information})
    loss = ((solution["VERTEX_SE2"] - truth) ** 2).sum()
    loss.backward()

Computed is in float64, by the solver's `device` whatever the tensors' device and dtype; estimates are float64
tensors on the device of the first input, gradients have their input's dtype and device. float64 tensors of a
batch on the GPU that solves it do not come to the host. Derivatives of derivatives are not defined.

    @graphopt.torch.edge_type(tag="EDGE_HEIGHT", vertices=["VERTEX_SE3:QUAT"], residual_dim=1)
    def height(poses):  # (m, 7) of all edges
        return network(poses[:, :3])  # (m, 1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.derivatives.call import Call, call_of
from graphopt.derivatives.memory import Memory
from graphopt.derivatives.refine import Doubts
from graphopt.errors import OptionError, ShapeError
from graphopt.foreign_arrays import on_cuda
from graphopt.graph import Graph
from graphopt.optimizer.summary import Summary
from graphopt.types.base import EdgeType, ParameterType, VertexType
from graphopt.types.identity import home_of
from graphopt.types.outside import outside_edge_type
from graphopt.types.outside_functions import OnDevice, operations

try:
    import torch
except ImportError as error:
    raise ImportError(
        "graphopt.torch needs PyTorch, which is not installed: pip install 'graphopt[torch]'."
    ) from error

__all__ = ["Solution", "edge_type", "solve"]


@dataclass(frozen=True)
class Solution:
    """The optimum; `solution["VERTEX_SE2"]` are the estimates of a vertex type."""

    estimates: dict[str, torch.Tensor]
    """By tag of the vertex type (n, storage_dim), of a batch (b, n, storage_dim)."""
    summary: Summary
    doubts: Doubts
    """`doubts.sentences` says what makes derivatives doubtful; empty if nothing does."""

    def __getitem__(self, tag: str) -> torch.Tensor:
        return self.estimates[tag]


def solve(graph: Graph, inputs: Mapping[str, torch.Tensor], **options: Any) -> Solution:
    """The optimum of `graph` with these inputs, through which gradients flow back to them.

    inputs: by name (see `graphopt.derivatives.inputs`) tensors that stand for arrays of the graph:
        "TAG.measurement", "TAG.information", "TAG.kernel_width" of edges, "TAG.values" of parameters,
        "TAG.estimate" of vertices (fixed ones are inputs, others start there). Shorter shapes broadcast: one
        (d, d) information for all edges. With one dimension more they are a batch: as many problems are
        solved, as one graph of copies.
    options: of `graphopt.optimize`, and
        gradient="implicit": of the optimum, by the implicit function theorem with the exact Hessian;
            "truncated": through the last `steps` (5) Gauss-Newton iterations only.
        on_doubt="raise": `backward` raises `GradientError` where the derivative cannot be trusted: the step
            that was left promises more than 1e-6 of chi2, the Hessian is singular, or an edge is at a kink
            of its robust kernel; "warn" warns.
        singular="error"; "damp" adds 1e-8 of the Hessian's diagonal, for graphs that can move as a whole and
            losses that do not change with it.
        warm_start=True leaves the optimum in the graph; by default the graph stays as it is.

    Raises `ShapeError`, `OptionError`, `GraphError`; `GradientError` for graphs whose optimum has no
    derivative here (computed values, edges that are evaluated outside).
    """
    if torch.compiler.is_compiling():
        apart: Any = torch.compiler.disable(_solve)
        return apart(graph, inputs, options)
    return _solve(graph, inputs, options)


def _solve(graph: Graph, inputs: Mapping[str, torch.Tensor], options: Mapping[str, Any]) -> Solution:
    """See `solve`."""
    for name, tensor in inputs.items():
        if not isinstance(tensor, torch.Tensor):
            raise OptionError(f"input {name!r} is {type(tensor).__name__}, expected a torch tensor.")
        if tensor.is_complex() or tensor.dtype == torch.bool:
            raise ShapeError(f"{name} has dtype {tensor.dtype}, expected floating point numbers.")
    call = call_of(graph, {name: tensor.shape for name, tensor in inputs.items()}, options)
    shaped = [
        tensor.expand(full).reshape(whole)
        for tensor, full, whole in zip(inputs.values(), call.broadcast, call.reshape, strict=True)
    ]
    told: dict[str, Any] = {}
    found = _Solve.apply(call, told, *shaped)
    tags = call.problem.tags
    return Solution(dict(zip(tags, found, strict=True)), told["summary"], told["doubts"])


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, told: dict[str, Any], *tensors: torch.Tensor) -> Any:
        memory = Memory(call.problem, tensors, _Callers())
        solved, values = memory.solve(tensors)
        told["summary"], told["doubts"] = solved.summary, solved.doubts
        device = tensors[0].device
        outputs = tuple(
            _tensor(estimate, shape).to(device)
            for estimate, shape in zip(solved.estimates, call.output_shapes, strict=True)
        )
        ctx.call, ctx.doubts = call, solved.doubts
        ctx.host = None if values is None else (values, solved.estimates)
        ctx.save_for_backward(*tensors, *outputs)
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> Any:
        call: Call = ctx.call
        saved, count = ctx.saved_tensors, len(call.reshape)
        tensors, outputs = saved[:count], saved[count:]
        if all(gradient is None for gradient in gradients):
            return (None,) * (2 + count)
        rows = call.problem.shapes
        given = (*tensors, *outputs, *(gradient for gradient in gradients if gradient is not None))
        memory = Memory(call.problem, given, _Callers())
        found = memory.vjp(
            tensors,
            [output.reshape(shape) for output, shape in zip(outputs, rows, strict=True)],
            ctx.host,
            ctx.doubts,
            [
                None if gradient is None else gradient.reshape(shape)
                for gradient, shape in zip(gradients, rows, strict=True)
            ],
        )
        return (
            None,
            None,
            *(
                _tensor(array, tensor.shape).to(tensor) if needed else None
                for array, tensor, needed in zip(found, tensors, ctx.needs_input_grad[2:], strict=True)
            ),
        )


class _Callers:
    """Implements `derivatives.memory.CallersLibrary`."""

    def ordinal(self, array: torch.Tensor) -> int | None:
        """CUDA's device of a float64 tensor, None of others."""
        is_there = array.device.type == "cuda" and array.dtype == torch.float64
        return array.device.index if is_there else None

    def dense(self, array: torch.Tensor) -> torch.Tensor:
        """Without gaps."""
        return array.detach().contiguous()

    def is_finite(self, array: torch.Tensor) -> bool:
        """All numbers are."""
        return bool(torch.isfinite(array).all())

    def host(self, array: torch.Tensor) -> np.ndarray:
        """As float64."""
        return _numpy(array)


def _tensor(array: Any, shape: Sequence[int]) -> torch.Tensor:
    """A tensor over an array of the host, or of CUDA's."""
    made = torch.from_numpy(array) if isinstance(array, np.ndarray) else torch.from_dlpack(array)
    return made.reshape(tuple(shape))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().to("cpu", torch.float64).contiguous().numpy()


def edge_type(
    *,
    tag: str,
    vertices: Sequence[str | VertexType],
    residual_dim: int,
    measurement_dim: int = 0,
    parameters: Sequence[str | ParameterType] = (),
    jacobian: str = "reverse",
    device: str = "cpu",
    dtype: torch.dtype = torch.float64,
) -> Callable[[Callable[..., torch.Tensor]], EdgeType]:
    """Decorator: an edge type whose residual a function of tensors computes, of all its edges at once.

    The function takes stored estimates (m, storage_dim) per vertex, stored parameters (m, storage_dim) each,
    and the measurements (m, measurement_dim) if there are any, as tensors of `dtype` on `device`; it returns
    (m, residual_dim), in which row k depends on rows k only. It is called once per linearization and once per
    chi2; its edges are mixed with compiled ones and have information, robust kernels and levels as these.
    With device="cuda" and a solver on that GPU (`optimize(device="vulkan")`) only chi2 comes to the host.

    jacobian: "reverse" differentiates by torch, one backward pass per component; "differences" by central
        differences of stored numbers, for functions that torch cannot differentiate.

    Raises `ShapeError` when the function returns another shape.
    """
    if jacobian not in ("reverse", "differences"):
        raise OptionError(f"jacobian is {jacobian!r}, expected 'reverse' or 'differences'.")
    library, count = _Tensors(torch.device(device)), len(vertices)

    def decorate(function: Callable[..., torch.Tensor]) -> EdgeType:
        def evaluate(*arrays: Any) -> torch.Tensor:
            with torch.no_grad():
                found = function(*(library.upload(array).to(dtype) for array in arrays))
            return _residual(tag, found).to(torch.float64)

        def linearize(*arrays: Any) -> tuple[torch.Tensor, list[torch.Tensor]]:
            return _linearized(tag, function, count, [library.upload(array).to(dtype) for array in arrays])

        def here(*arrays: np.ndarray) -> np.ndarray:
            return _numpy(evaluate(*arrays))

        def linearize_here(*arrays: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
            residual, blocks = linearize(*arrays)
            return _numpy(residual), list(map(_numpy, blocks))

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
            on_device=OnDevice(library, evaluate, linearize) if differentiates else None,
        )

    return decorate


def _residual(tag: str, found: Any) -> torch.Tensor:
    if not isinstance(found, torch.Tensor):
        raise ShapeError(f"{tag}: the residual is a {type(found).__name__}, expected one tensor of torch.")
    return found


def _linearized(
    tag: str, function: Callable[..., torch.Tensor], count: int, given: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Residuals, and their derivatives (m, residual_dim, dim) by the first `count` of the given tensors."""
    moving = [tensor.detach().requires_grad_() for tensor in given[:count]]
    with torch.enable_grad():
        residual = _residual(tag, function(*moving, *given[count:]))
        totals = residual.sum(dim=0).unbind() if residual.dim() == 2 else ()
    if not residual.requires_grad:
        raise OptionError(
            f"{tag}: torch has recorded nothing from the vertices to the residual (detach, numpy, integers). "
            "Compute it by torch from the given tensors, or pass jacobian='differences'."
        )
    columns = [
        torch.autograd.grad(total, moving, retain_graph=True, materialize_grads=True) for total in totals
    ]
    blocks = [torch.stack(column, dim=1).to(torch.float64) for column in zip(*columns, strict=True)]
    return residual.detach().to(torch.float64), blocks


class _Tensors:
    """Implements `types.outside_functions.Library`."""

    def __init__(self, device: torch.device):
        self._device = device
        self.functions = operations(torch, lambda tensor: tensor.to(torch.float64))
        self._constants: dict[float, torch.Tensor] = {}

    def ordinal(self) -> int | None:
        """Of the device, None: it is none of CUDA's."""
        if self._device.type != "cuda":
            return None
        return torch.cuda.current_device() if self._device.index is None else self._device.index

    def active(self) -> Any:
        """Nothing records gradients."""
        return torch.no_grad()

    def upload(self, array: Any) -> torch.Tensor:
        """An array of numpy's, or a number, there."""
        if isinstance(array, float):
            if array not in self._constants:
                self._constants[array] = torch.tensor(array, dtype=torch.float64, device=self._device)
            return self._constants[array]
        return torch.as_tensor(array).to(self._device)

    def einsum(self, subscripts: str, *arrays: torch.Tensor) -> torch.Tensor:
        """`numpy.einsum`."""
        return torch.einsum(subscripts, *arrays)

    def concatenate(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        """One after another."""
        return torch.cat(list(arrays))

    def stack(self, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        """As columns."""
        return torch.stack(list(arrays), dim=1)

    def of(self, array: Any) -> torch.Tensor:
        """Over the same memory."""
        return torch.from_dlpack(array)

    def numbers(self, array: torch.Tensor) -> Any:
        """Where they are."""
        return on_cuda(array)
