"""Optimization algorithms, written once over `solver.BlockSolver`: auto, lm, gn, dogleg."""

from graphopt.optimizer.optimize import METHODS, optimize
from graphopt.optimizer.options import (
    AutoOptions,
    DoglegOptions,
    GaussNewtonOptions,
    LevenbergMarquardtOptions,
    StopRules,
)
from graphopt.optimizer.signals import Interrupted, StopFlag
from graphopt.optimizer.summary import Iteration, Summary, TerminationType

__all__ = [
    "METHODS",
    "AutoOptions",
    "DoglegOptions",
    "GaussNewtonOptions",
    "Interrupted",
    "Iteration",
    "LevenbergMarquardtOptions",
    "StopFlag",
    "StopRules",
    "Summary",
    "TerminationType",
    "optimize",
]
