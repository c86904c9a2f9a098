"""Threads that trace residuals at the same time do not see each other's expressions."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import numpy as np

import graphopt
from graphopt.codegen import compile_edge
from graphopt.symbolic import Expr
from graphopt.types.batches import row_by_row


def test_a_residual_is_traced_while_another_one_is():
    """The second begins and ends within the first, which is called again and has to return the same."""
    begun, goes_on, found = Event(), Event(), []

    @graphopt.vertex_type(tag="TT_LINE", tangent_dim=2)
    def TtLine(x, delta):
        return x + delta

    @graphopt.edge_type(tag="TT_WITHIN", vertices=(TtLine,))
    def TtWithin(x):
        """Waits in the middle of its trace."""
        if isinstance(x[0], Expr):
            begun.set()
            assert goes_on.wait(20.0)
        return np.array([np.sin(x[0]), np.cos(x[1])])

    @graphopt.edge_type(tag="TT_AROUND", vertices=(TtLine,))
    def TtAround(x):
        """The first trace lets the other begin, and end."""
        is_first = isinstance(x[0], Expr) and not found
        if is_first:
            found.append(pool.submit(row_by_row, TtWithin, [np.array([[0.3, 0.4]]), np.zeros((1, 0))]))
            assert begun.wait(20.0)
        result = np.array([np.sin(x[0]), np.cos(x[1])])
        if is_first:
            goes_on.set()
            found[0].exception(20.0)
        return result

    with ThreadPoolExecutor(1) as pool:
        compile_edge(TtAround, information="identity", robust=None)
    np.testing.assert_allclose(found[0].result(), [[np.sin(0.3), np.cos(0.4)]])
