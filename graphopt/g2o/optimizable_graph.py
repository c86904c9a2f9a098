"""`OptimizableGraph`: a hyper graph with parameters, estimates, levels and actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np

from graphopt.errors import GraphError
from graphopt.g2o.actions import HyperGraphAction
from graphopt.g2o.elements.base import ActionType
from graphopt.g2o.elements.edges import OptimizableGraph_Edge
from graphopt.g2o.elements.parameters import Parameter, ParameterContainer
from graphopt.g2o.elements.vertices import OptimizableGraph_Vertex
from graphopt.g2o.engine.storage import fast_method
from graphopt.g2o.hyper_graph import HyperGraph


class OptimizableGraph(HyperGraph):
    """A hyper graph whose vertices can be moved and whose edges have errors."""

    OptimizableGraph_Vertex = OptimizableGraph_Vertex
    OptimizableGraph_Edge = OptimizableGraph_Edge
    ActionType = ActionType
    AT_PREITERATION = ActionType.AT_PREITERATION
    AT_POSTITERATION = ActionType.AT_POSTITERATION
    AT_NUM_ELEMENTS = ActionType.AT_NUM_ELEMENTS
    _is_optimizer: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__()
        self._parameter_container = ParameterContainer(self)
        self._pre_actions: dict[Any, None] = {}
        self._post_actions: dict[Any, None] = {}

    # ---------------------------------------------------------------- elements

    @fast_method
    def add_edge(self, e: Any) -> bool:
        """Add an edge.

        False as for a hyper graph, or if a parameter that it needs is missing or of the wrong class.
        """
        if (e._type.parameters and not self._parameters_fit(e)) or not HyperGraph.add_edge(self, e):
            return False
        e._internal_id = self._next_edge
        self._next_edge += 1
        return True

    def _parameters_fit(self, edge: Any) -> bool:
        parameters = [self._parameter_container.get_parameter(param_id) for param_id in edge.param_ids()]
        kinds = edge._type.parameters
        return all(
            vertex is not None and vertex._type is kind
            for vertex, kind in zip(parameters, kinds, strict=True)
        )

    def add_parameter(self, p: Parameter) -> bool:
        """Add a parameter; False if its id is negative or taken."""
        return self._parameter_container.add_parameter(p)

    def parameter(self, id: int) -> Parameter | None:
        """The parameter with this id, None if there is none."""
        return self._parameter_container.get_parameter(id)

    def parameters(self) -> ParameterContainer:
        """All parameters."""
        return self._parameter_container

    def clear_parameters(self) -> None:
        """Remove all parameters."""
        self._parameter_container.clear()

    def clear(self) -> None:
        """Take everything out, parameters too."""
        super().clear()
        self._parameter_container.clear()

    def add_graph(self, graph: OptimizableGraph) -> None:
        """Move all vertices, edges and parameters of another graph into this one.

        Its ids that are taken stay there.
        """
        for parameter in list(graph._parameter_container._by_id.values()):
            if OptimizableGraph.add_parameter(self, parameter):
                graph._parameter_container._by_id.pop(parameter.id())
        edges = list(graph._edges)
        for edge in edges:
            HyperGraph.remove_edge(graph, edge)
        for vertex in list(graph._vertices.values()):
            if vertex._id not in self._vertices:
                HyperGraph.remove_vertex(graph, vertex)
                HyperGraph.add_vertex(self, vertex)
        for edge in edges:
            OptimizableGraph.add_edge(self, edge)

    def set_fixed(self, vset: Iterable[Any], fixes: bool) -> None:
        """Fix or free several vertices."""
        for vertex in vset:
            vertex.set_fixed(fixes)

    def dimensions(self) -> set[int]:
        """Dimensions of the vertices."""
        return {vertex.dimension() for vertex in self._vertices.values()}

    def max_dimension(self) -> int:
        """Largest dimension of a vertex, 0 without vertices."""
        return max(OptimizableGraph.dimensions(self), default=0)

    # ---------------------------------------------------------------- estimates

    def push(self, vlist: Iterable[Any] | None = None) -> None:
        """Remember estimates, of all vertices by default."""
        for vertex in self._vertices.values() if vlist is None else vlist:
            vertex.push()

    def pop(self, vlist: Iterable[Any] | None = None) -> None:
        """Return to the last pushed estimates."""
        for vertex in self._vertices.values() if vlist is None else vlist:
            vertex.pop()

    def discard_top(self, vlist: Iterable[Any] | None = None) -> None:
        """Forget the last pushed estimates."""
        for vertex in self._vertices.values() if vlist is None else vlist:
            vertex.discard_top()

    def chi2(self) -> float:
        """Sum of all edges' chi2, of their last `compute_error`."""
        return float(sum(edge.chi2() for edge in self._edges))

    def optimize(self, iterations: int, online: bool = False) -> int:
        """Only a `SparseOptimizer` has an algorithm: -1."""
        return -1

    def verify_information_matrices(self, verbose: bool = False) -> bool:
        """All information matrices are symmetric and positive definite."""
        good = True
        for edge in self._edges:
            matrix = edge._chunk.information[edge._row]
            if not np.allclose(matrix, matrix.T, rtol=0.0, atol=1e-9) or np.linalg.eigvalsh(matrix)[0] <= 0.0:
                good = False
                if verbose:
                    print(f"{edge!r}: the information matrix is not symmetric and positive definite.")
        return good

    # ---------------------------------------------------------------- actions

    def add_pre_iteration_action(self, action: HyperGraphAction) -> bool:
        """Call an action before each iteration; False if it is there already."""
        return _add(self._pre_actions, action)

    def add_post_iteration_action(self, action: HyperGraphAction) -> bool:
        """Call an action after each iteration; False if it is there already."""
        return _add(self._post_actions, action)

    def remove_pre_iteration_action(self, action: HyperGraphAction) -> bool:
        """Call it no more; False if it was not there."""
        return self._pre_actions.pop(action, self) is None

    def remove_post_iteration_action(self, action: HyperGraphAction) -> bool:
        """Call it no more; False if it was not there."""
        return self._post_actions.pop(action, self) is None

    def pre_iteration(self, iteration: int) -> None:
        """Called before each iteration (-1: before the first); runs the actions."""
        for action in list(self._pre_actions):
            action(self, {"iteration": iteration})

    def post_iteration(self, iteration: int) -> None:
        """Called after each iteration (-1: before the first); runs the actions."""
        for action in list(self._post_actions):
            action(self, {"iteration": iteration})

    # ---------------------------------------------------------------- files

    def load(self, filename: str, format: Any = None) -> bool:
        """Replace the graph by a file's; False if the file cannot be read. `format`: an `IoFormat`."""
        from graphopt.g2o.files import load

        return load(self, filename, format)

    def save(self, filename: str, format: Any = None, level: int = 0) -> bool:
        """Write the edges of a level (all if negative) with all vertices and parameters.

        False if it fails.
        """
        from graphopt.g2o.files import save

        return save(self, filename, format, level)

    # ---------------------------------------------------------------- kept for programs

    @staticmethod
    def init_multi_threading() -> bool:
        """True: the native code uses threads by itself."""
        return True

    def recompute_jacobian_workspace_size(self) -> None:
        """Kept for programs: there is no workspace."""

    def _number_hessian(self) -> None:
        """An optimizer numbers its active vertices here."""

    def _hessian_block(self, vertex: Any) -> np.ndarray:
        raise GraphError("Only a SparseOptimizer has Hessian blocks.")

    _b_block = _hessian_block


def _add(actions: dict[Any, None], action: Any) -> bool:
    if action in actions:
        return False
    actions[action] = None
    return True
