"""Derivatives of an optimum by what it was computed from: measurements, information, parameters, ...

inputs      which arrays of a graph are inputs, by name
equations   Hessian and gradient of chi2 / 2, exactly
refine      Newton's steps to the optimum, and what makes a derivative doubtful
adjoint     passes over vertices and edges that carry a cotangent back
batch       copies of a graph as one graph
problem     the optimum as a function: `solve` and `vjp`
batched     the same of many small problems on a device, a workgroup each
settings    options of both
"""

from graphopt.derivatives.problem import OptimumProblem
from graphopt.derivatives.refine import Doubts
from graphopt.derivatives.settings import Solved

__all__ = ["Doubts", "OptimumProblem", "Solved"]
