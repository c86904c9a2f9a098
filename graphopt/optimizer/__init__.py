"""Optimization algorithms, written once over `solver.BlockSolver`: auto, lm, gn, dogleg."""

from graphopt.optimizer.algorithm import Algorithm, AlgorithmBase, Outcome, Signals, Step
from graphopt.optimizer.dogleg import Dogleg
from graphopt.optimizer.gauss_newton import GaussNewton
from graphopt.optimizer.levenberg_marquardt import LevenbergMarquardt
from graphopt.optimizer.methods import METHODS, Method, register_algorithm
from graphopt.optimizer.optimize import optimize
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
    "Algorithm",
    "AlgorithmBase",
    "AutoOptions",
    "Dogleg",
    "DoglegOptions",
    "GaussNewton",
    "GaussNewtonOptions",
    "Interrupted",
    "Iteration",
    "LevenbergMarquardt",
    "LevenbergMarquardtOptions",
    "Method",
    "Outcome",
    "Signals",
    "Step",
    "StopFlag",
    "StopRules",
    "Summary",
    "TerminationType",
    "optimize",
    "register_algorithm",
]
