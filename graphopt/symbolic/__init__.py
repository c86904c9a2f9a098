"""Symbolic scalars: expression graph, derivatives, simplification, printing.

expr        Expr, hash-consed; make() simplifies on the way in with the rules of rules.py
symbolic_array, arrays, functions  numpy arrays of Expr; numpy functions on them
derivative  Jacobians along given directions
share       partial common sub-expressions of n-ary sums and products
images      images that a residual samples
sampling    planes of pixels, what sampling means
evaluate    reference interpreter: what an expression means
printer, verify
"""

from graphopt.symbolic import arrays, rules  # noqa: F401  (fill tables)
from graphopt.symbolic.derivative import jacobian, substitute
from graphopt.symbolic.evaluate import evaluate
from graphopt.symbolic.expr import Expr, const, format_expr, fresh_table, lift, make, topological, var
from graphopt.symbolic.images import Image, SampledImage
from graphopt.symbolic.printer import count_operations, format_program
from graphopt.symbolic.share import share_partial
from graphopt.symbolic.symbolic_array import SymbolicArray, as_exprs, symbolic_array, variables
from graphopt.symbolic.verify import verify

__all__ = [
    "Expr",
    "Image",
    "SampledImage",
    "SymbolicArray",
    "as_exprs",
    "const",
    "count_operations",
    "evaluate",
    "format_expr",
    "format_program",
    "fresh_table",
    "jacobian",
    "lift",
    "make",
    "share_partial",
    "substitute",
    "symbolic_array",
    "topological",
    "var",
    "variables",
    "verify",
]
