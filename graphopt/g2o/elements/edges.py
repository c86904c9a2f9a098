"""`OptimizableGraph_Edge`: the base class of all edges with an error.

An edge keeps its measurement, information matrix, level and last error in a row of its type's arrays (see
`storage`). `error` is the value of the last `compute_error()`, which `optimize` calls for all active edges
when it ends, and `chi2()` belongs to it, as in g2o.

A class that overrides `compute_error` is evaluated by calling it; the error may be set (`self.error = ...`)
or returned. Without `linearize_oplus`, its Jacobians are central differences, as in g2o.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError, ShapeError
from graphopt.g2o.elements.hyper_edge import Edge
from graphopt.g2o.elements.numeric_jacobians import numeric_jacobians
from graphopt.g2o.elements.robust_kernels import BaseRobustKernel
from graphopt.g2o.elements.vertex_types import vertex_class
from graphopt.g2o.elements.vertices import OptimizableGraph_Vertex
from graphopt.g2o.engine import evaluate
from graphopt.g2o.engine.storage import Chunk, Pool, fast_getter, fast_method, fast_setter
from graphopt.g2o.values import scalar
from graphopt.types import EdgeType

if TYPE_CHECKING:
    from graphopt.g2o.elements.parameters import Parameter


class CallableArray(np.ndarray):
    """An array that may also be called: `edge.error` of g2opy 2 and `edge.error()` of older bindings."""

    def __call__(self) -> np.ndarray:
        """The array itself."""
        return self

    def __array_wrap__(self, array: np.ndarray, context: Any = None, return_scalar: bool = False) -> Any:
        """Results of arithmetic are plain arrays and numbers."""
        return array[()] if return_scalar or array.ndim == 0 else array


class OptimizableGraph_Edge(Edge):
    """An edge with a measurement, an information matrix and an error."""

    __slots__ = ()
    _pool: ClassVar[Pool]
    _type: EdgeType
    _arity: ClassVar[int]
    _error_is_python: ClassVar[bool] = False
    _jacobian_is_python: ClassVar[bool] = False
    _value: ClassVar[Any] = None
    _kernel: BaseRobustKernel | None
    _parameters: list[int] | None
    _jacobians: list[np.ndarray] | None
    _chunk: Chunk
    __init__ = kernels.EdgeRow.__init__

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if cls.__module__ == __name__ or "_type" in cls.__dict__:
            return
        if "compute_error" in cls.__dict__:
            cls.compute_error = _storing(cls.__dict__["compute_error"])
            cls._error_is_python = True
        if "linearize_oplus" in cls.__dict__:
            cls._jacobian_is_python = True

    def graph(self) -> Any:
        """The graph that it is in, None if there is none."""
        return self._graph

    # ---------------------------------------------------------------- measurement and information

    def _from_storage(self, storage: np.ndarray) -> Any:
        return storage.copy()

    def _to_storage(self, value: Any) -> Any:
        return scalar.floats(value, self._chunk.measurement.shape[1], f"{type(self).__name__} measurement")

    def measurement(self) -> Any:
        """Measurement (a copy)."""
        return self._from_storage(self._chunk.measurement[self._row])

    def set_measurement(self, m: Any) -> None:
        """Replace the measurement."""
        self._chunk.measurement[self._row] = self._to_storage(m)

    def get_measurement_data(self) -> np.ndarray:
        """Numbers of the measurement."""
        return self._chunk.measurement[self._row].copy()

    def set_measurement_data(self, m: Any) -> bool:
        """Replace the numbers of the measurement; False if the count is wrong."""
        numbers = np.asarray(m, np.float64).ravel()
        fits = len(numbers) == self.measurement_dimension()
        if fits:
            self._chunk.measurement[self._row, : len(numbers)] = numbers
        return fits

    def set_measurement_from_state(self) -> bool:
        """Set the measurement so that the error is zero at the present estimates.

        False if the type cannot.
        """
        from graphopt.g2o.elements.initial_estimates import measurement_from_state

        return measurement_from_state(self)

    def measurement_dimension(self) -> int:
        """Length of `get_measurement_data`."""
        return self._chunk.measurement.shape[1]

    def measurement_dimension_at_compile_time(self) -> int:
        """The same for classes with a fixed size."""
        return self.measurement_dimension()

    def minimal_measurement_dimension(self) -> int:
        """Length of the error."""
        return self.dimension()

    def dimension(self) -> int:
        """Length of the error."""
        return self._type.residual_dim

    rank = dimension_at_compile_time = dimension

    def information(self) -> np.ndarray:
        """(d, d) information matrix (a copy)."""
        return self._chunk.information[self._row].copy()

    @fast_setter("information", forgets_chi2=True)
    def set_information(self, information: Any) -> None:
        """Replace the (d, d) information matrix."""
        target = self._chunk.information[self._row]
        d = len(target)
        if np.shape(information) != target.shape and (d > 1 or np.size(information) != 1):
            raise ShapeError(f"{self!r}: information has shape {np.shape(information)}, expected ({d}, {d}).")
        target[:] = np.asarray(information, np.float64).reshape(d, d)
        self._chunk.chi2[self._row] = np.nan

    def information_identity(self) -> np.ndarray:
        """(d, d) identity."""
        return np.eye(self.dimension())

    # ---------------------------------------------------------------- error

    @property
    def error(self) -> np.ndarray:
        """(d,) error of the last `compute_error`; live. May be called, for programs of older bindings."""
        self._chunk.chi2[self._row] = np.nan
        return self._chunk.error[self._row].view(CallableArray)

    @error.setter
    def error(self, value: Any) -> None:
        self._chunk.error[self._row] = value
        self._chunk.chi2[self._row] = np.nan

    @fast_method
    def compute_error(self) -> Any:
        """Compute `error` at the present estimates. Override it to define an edge in Python."""
        kind = self._type
        chunk, row = self._chunk, self._row
        if not kind.parameters:
            evaluator = evaluate.evaluator(kind)
            if self._is_plain:
                chunk.evaluator = evaluator
            if evaluator.one(self):
                return
        error = evaluate.errors(kind, self._inputs())[0]
        chunk.error[row] = error
        chunk.chi2[row] = error @ chunk.information[row] @ error

    @fast_getter("chi2")
    def chi2(self) -> float:
        """error' information error, of the last `compute_error`, without robust kernel."""
        chunk, row = self._chunk, self._row
        value = float(chunk.chi2[row])
        if value == value:
            return value
        error = chunk.error[row]
        chunk.chi2[row] = value = float(error @ chunk.information[row] @ error)
        return value

    def _inputs(self) -> np.ndarray:
        """(1, k) estimates, parameters and measurement."""
        try:
            numbers = [vertex._chunk.estimate[vertex._row] for vertex in self._vertices]
        except AttributeError:
            raise GraphError(f"{self!r}: set all vertices before evaluating it.") from None
        if self._type.parameters:
            numbers += [self.parameter(i)._values() for i in range(len(self._type.parameters))]
        numbers.append(self._chunk.measurement[self._row])
        return np.concatenate(numbers)[None]

    # ---------------------------------------------------------------- Jacobians

    def linearize_oplus(self) -> None:
        """Compute the Jacobians at the present estimates.

        Override it (with `set_jacobian`) to give your own. Called from an override, it gives those of the
        built-in error, as in g2o; a class that only overrides `compute_error` gets differences of that.
        """
        if self._error_is_python and not self._jacobian_is_python:
            self._jacobians = numeric_jacobians(self)
        else:
            self._jacobians = [
                each_jacobian[0] for each_jacobian in evaluate.jacobians(self._type, self._inputs())
            ]

    def jacobian(self, vertex_index: int) -> np.ndarray:
        """(d, dimension of the vertex) Jacobian of the last `linearize_oplus`."""
        if self._jacobians is None:
            self.linearize_oplus()
        if self._jacobians is None:  # an override that leaves it to g2o
            self._jacobians = numeric_jacobians(self)
        return (self._jacobians or [])[vertex_index].view(CallableArray)

    def set_jacobian(self, vertex_index: int, jacobian: Any) -> None:
        """Set the Jacobian by one vertex, (d, dimension of the vertex)."""
        vertex = self._vertices[vertex_index]
        matrix = np.array(jacobian, np.float64)
        expected = (self.dimension(), vertex.dimension())
        if matrix.shape != expected:
            raise ShapeError(
                f"{self!r}: Jacobian {vertex_index} has shape {matrix.shape}, expected {expected}."
            )
        if self._jacobians is None or len(self._jacobians) != len(self._vertices):
            self._jacobians = [
                np.zeros((self.dimension(), each_vertex.dimension())) for each_vertex in self._vertices
            ]
        self._jacobians[vertex_index] = matrix

    @property
    def jacobian_oplus_xi(self) -> np.ndarray:
        """Jacobian by vertex 0."""
        return self.jacobian(0)

    @jacobian_oplus_xi.setter
    def jacobian_oplus_xi(self, matrix: Any) -> None:
        self.set_jacobian(0, matrix)

    @property
    def jacobian_oplus_xj(self) -> np.ndarray:
        """Jacobian by vertex 1."""
        return self.jacobian(1)

    @jacobian_oplus_xj.setter
    def jacobian_oplus_xj(self, matrix: Any) -> None:
        self.set_jacobian(1, matrix)

    # ---------------------------------------------------------------- robust kernel, level, parameters

    def robust_kernel(self) -> BaseRobustKernel | None:
        """The robust kernel object, None for none."""
        return self._kernel

    @fast_method
    def set_robust_kernel(self, ptr: BaseRobustKernel | None) -> None:
        """Set (or with None remove) the robust kernel; later changes of its delta count."""
        if ptr is not None and not isinstance(ptr, BaseRobustKernel):
            raise TypeError(f"set_robust_kernel takes a RobustKernel* or None, got {ptr!r}.")
        self._kernel = ptr

    @fast_getter("level")
    def level(self) -> int:
        """Level; an optimization takes the edges of one level."""
        return int(self._chunk.level[self._row])

    @fast_setter("level")
    def set_level(self, l: int) -> None:  # noqa: E741 - g2o's name of the argument
        """Set the level; `initialize_optimization` reads it."""
        self._chunk.level[self._row] = l

    def num_parameters(self) -> int:
        """Parameters that the type needs."""
        return len(self._type.parameters)

    def set_parameter_id(self, arg_num: int, param_id: int) -> bool:
        """Say which parameter of the graph is number `arg_num`; False if the type has no such parameter."""
        count = self.num_parameters()
        if not 0 <= arg_num < count:
            return False
        if self._parameters is None:
            self._parameters = [-1] * count
        self._parameters[arg_num] = int(param_id)
        if self._graph is not None:
            self._graph._topology_changed()
        return True

    def param_ids(self) -> list[int]:
        """Ids of the parameters, -1 until set."""
        return list(self._parameters or [-1] * self.num_parameters())

    def parameter(self, i: int) -> Parameter:
        """Parameter number i, None before the edge is in a graph that has it."""
        graph = self._graph or next(
            (vertex._graph for vertex in self._vertices if vertex is not None and vertex._graph), None
        )
        parameter = None if graph is None else graph.parameter(self.param_ids()[i])
        if parameter is None:
            raise GraphError(f"{self!r}: parameter {i} (id {self.param_ids()[i]}) is not in the graph.")
        return parameter

    def internal_id(self) -> int:
        """How many edges were added to the graph before this one; -1 before it is added."""
        return self._internal_id

    # ---------------------------------------------------------------- rest

    def all_vertices_fixed(self) -> bool:
        """Every vertex is fixed."""
        return all(vertex.fixed() for vertex in self._vertices)

    def create_vertex(self, i: int) -> OptimizableGraph_Vertex:
        """A new vertex of the class that slot i takes."""
        return vertex_class(self._type.vertices[i])()

    def initial_estimate_possible(self, from_: Any, to: OptimizableGraph_Vertex) -> float:
        """Cost of `initial_estimate`, negative if the type cannot."""
        from graphopt.g2o.elements.initial_estimates import initial_estimate_cost

        return initial_estimate_cost(self, from_, to)

    def initial_estimate(self, from_: Any, to: OptimizableGraph_Vertex) -> None:
        """Set the estimate of `to` from the estimates of `from_` and the measurement."""
        from graphopt.g2o.elements.initial_estimates import initial_estimate

        initial_estimate(self, from_, to)

    def construct_quadratic_form(self) -> None:
        """Kept for programs: `optimize` adds the edge's part of H and b by itself."""


def _storing(function: Callable[..., Any]) -> Callable[..., Any]:
    """`compute_error` of a Python class: a returned error is stored."""

    @wraps(function)
    def compute_error(self: OptimizableGraph_Edge) -> Any:
        result = function(self)
        if result is not None:
            self.error = result
        return result

    return compute_error
