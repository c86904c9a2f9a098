"""Solver names of the g2o program: what they are made of, their list, and their properties.

A name is an algorithm (gn, lm, dl), block sizes (var, fix3_2, fix6_3, fix7_3) and a linear solver; which of
ours is behind a linear solver's name says `graphopt.g2o.engine.solvers`. `structure_only_2` and
`structure_only_3` move the landmarks only; `2dlinear` computes start values from the measurements before
Gauss-Newton.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from graphopt.errors import OptionError

_ALGORITHMS = {"gn": "GaussNewton", "lm": "Levenberg", "dl": "Dogleg"}
_SIZES = {"var": ("X", -1, -1), "fix3_2": ("SE2", 3, 2), "fix6_3": ("SE3", 6, 3), "fix7_3": ("Sim3", 7, 3)}
_BACKENDS = {"": "CSparse", "_eigen": "Eigen", "_cholmod": "Cholmod", "_csparse": "CSparse"}


@dataclass(frozen=True)
class SolverName:
    """What a solver name stands for; dimensions are -1 where any will do."""

    algorithm: str
    """GaussNewton, Levenberg or Dogleg."""
    suffix: str
    """Of the block solver's class: X, SE2, SE3, Sim3."""
    linear: str
    """Of the linear solver's class."""
    pose_dim: int = -1
    landmark_dim: int = -1
    marginalizes: bool = False
    """Landmarks are eliminated."""
    landmarks_only: bool = False
    """Poses stay."""
    starts_linear: bool = False
    """Start values from the measurements first."""

    def fits(self, dimensions: set[int]) -> bool:
        """A graph with vertices of these dimensions can be optimized (g2o's `isSolverSuitable`)."""
        if self.landmarks_only:
            return self.landmark_dim in dimensions
        if self.pose_dim < 0:
            return True
        if len(dimensions) == 2:
            return self.marginalizes and dimensions == {self.pose_dim, self.landmark_dim}
        return dimensions == {self.pose_dim}

    def describe(self) -> str:
        """One line for a list."""
        words = [f"{self.algorithm}: {self.linear}"]
        words.append(
            "any block sizes" if self.pose_dim < 0 else f"blocks {self.pose_dim} and {self.landmark_dim}"
        )
        if self.marginalizes:
            words.append("eliminates landmarks")
        if self.landmarks_only:
            words = ["Levenberg: moves the landmarks only"]
        if self.starts_linear:
            words = ["Start values from the measurements, then GaussNewton; 2D pose graphs"]
        return ", ".join(words)

    def make(self, g2o: Any) -> Any:
        """The optimization algorithm."""
        linear = getattr(g2o, f"LinearSolver{self.linear}{self.suffix}")()
        solver = getattr(g2o, f"BlockSolver{self.suffix}")(linear)
        return getattr(g2o, f"OptimizationAlgorithm{self.algorithm}")(solver)


def solver_names() -> dict[str, SolverName]:
    """All names, as g2o's libraries register them."""
    names: dict[str, SolverName] = {}
    for short, algorithm in _ALGORITHMS.items():
        for size, (suffix, pose, landmark) in _SIZES.items():
            fixed = size != "var"
            for backend, linear in _BACKENDS.items():
                names[f"{short}_{size}{backend}"] = SolverName(
                    algorithm, suffix, linear, pose, landmark, fixed
                )
            for kind, linear in (("dense", "Dense"), ("pcg", "PCG")):
                name = f"{short}_{kind}{size.removeprefix('fix') if fixed else ''}"
                names[name] = SolverName(algorithm, suffix, linear, pose, landmark, fixed)
    for dim in (2, 3):
        names[f"structure_only_{dim}"] = SolverName(
            "Levenberg", "X", "Dense", landmark_dim=dim, landmarks_only=True
        )
    names["2dlinear"] = SolverName("GaussNewton", "X", "Eigen", 3, 3, starts_linear=True)
    return names


def solver_list() -> list[str]:
    """A line per name."""
    names = solver_names()
    width = max(map(len, names)) + 4
    return [f"{name:{width}}{each_name.describe()}" for name, each_name in names.items()]


# -------------------------------------------------------------------- properties

_PROPERTIES = {
    "Levenberg": {"initialLambda": "initial_lambda", "maxTrialsAfterFailure": "max_trials"},
    "Dogleg": {
        "initialDelta": "initial_delta",
        "initialLambda": "initial_lambda",
        "lambdaFactor": "lambda_factor",
        "maxTrialsAfterFailure": "max_trials",
    },
    "GaussNewton": {},
}
"""Algorithm -> g2o's name of a property -> our option."""


def set_properties(algorithm: Any, name: SolverName, text: str) -> list[str]:
    """`initialLambda=0.0001,maxTrialsAfterFailure=2`; OptionError for a value that does not fit.

    Returns sentences about names that the algorithm does not have: g2o warns and goes on.
    """
    known = _PROPERTIES[name.algorithm]
    warnings = []
    for entry in filter(None, text.split(",")):
        key, _, value = (part.strip() for part in entry.partition("="))
        if key not in known:
            warnings.append(
                f"-solverProperties: {name.algorithm} has no property '{key}', it is ignored. "
                f"Known: {', '.join(known) or 'none'}."
            )
            continue
        try:
            algorithm._options[known[key]] = int(value) if key.startswith("max") else float(value)
        except ValueError:
            raise OptionError(f"-solverProperties: '{value}' is not a number ({key}).") from None
    algorithm._make(1)  # the options check their values
    return warnings


def property_lines(algorithm: Any, name: SolverName) -> list[str]:
    """g2o's table of properties."""
    options = {field.name: field.default for field in fields(algorithm._options_type)} | algorithm._options
    known = sorted(_PROPERTIES[name.algorithm].items())
    lines = [f"{key}\t{options[ours] if options[ours] is not None else 0:g}" for key, ours in known]
    title = "------------- Algorithm Properties -------------"
    return [title, *lines, "-" * len(title)]
