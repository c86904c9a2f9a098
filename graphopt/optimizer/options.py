"""Options of the optimization algorithms: frozen, each with its source. Tolerances are dimensionless."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphopt.errors import OptionError
from graphopt.suggestions import knows_its_options


@dataclass(frozen=True)
class StopRules:
    """When an algorithm stops before its last iteration. A tolerance of 0 switches its rule off."""

    max_iterations: int = 10
    """Linearizations at most; rejected trials do not count. 10 as in the g2o program."""
    function_tolerance: float = 0.0
    """Stop when an accepted step changes chi2 by no more than this fraction of it."""
    gradient_tolerance: float = 0.0
    """Stop when the largest entry of b (half of chi2's gradient) is no larger than this."""
    step_tolerance: float = 0.0
    """Stop when the largest entry of an accepted dx is no larger than this."""

    def __post_init__(self) -> None:
        if not isinstance(self.max_iterations, (int, np.integer)):
            raise OptionError(f"max_iterations is {self.max_iterations!r}, expected a whole number.")
        if self.max_iterations < 0:
            raise OptionError(f"max_iterations is {self.max_iterations}, must be >= 0.")
        for name in ("function_tolerance", "gradient_tolerance", "step_tolerance"):
            if not getattr(self, name) >= 0.0:
                raise OptionError(f"{name} is {getattr(self, name)}, must be >= 0 (0 switches the rule off).")


@dataclass(frozen=True)
class GaussNewtonOptions(StopRules):
    """Options of Gauss-Newton."""


@dataclass(frozen=True)
class LevenbergMarquardtOptions(StopRules):
    """Options of Levenberg-Marquardt. Defaults are g2o's."""

    initial_lambda: float = 0.0
    """First damping; 0 computes it as tau times the largest diagonal entry of H (g2o `initialLambda`)."""
    tau: float = 1e-5
    """See `initial_lambda` (g2o `_tau`)."""
    max_trials: int = 10
    """Trials in one iteration before giving up (g2o `maxTrialsAfterFailure`)."""
    good_step_lower_scale: float = 1.0 / 3.0
    """A good step scales lambda by at least this (g2o `_goodStepLowerScale`)."""
    good_step_upper_scale: float = 2.0 / 3.0
    """A good step scales lambda by at most this (g2o `_goodStepUpperScale`)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive(self, "tau", "good_step_lower_scale", "good_step_upper_scale", "max_trials")
        if self.initial_lambda < 0.0:
            raise OptionError(f"initial_lambda is {self.initial_lambda}, must be >= 0 (0 computes it).")


@dataclass(frozen=True)
class DoglegOptions(StopRules):
    """Options of Powell's dogleg. Defaults are g2o's."""

    initial_delta: float = 1e4
    """First trust-region radius, in the norm of dx (g2o `initialDelta`)."""
    max_trials: int = 100
    """Trials in one iteration before giving up (g2o `maxTrialsAfterFailure`)."""
    initial_lambda: float = 1e-7
    """First damping once a system was not positive definite (g2o `initialLambda`)."""
    lambda_factor: float = 10.0
    """That damping grows by this factor while the system stays indefinite (g2o `lambdaFactor`)."""
    scaled: bool = False
    """Measure steps times sqrt(diag(H)), as Ceres' dogleg does; g2o's does not."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive(self, "initial_delta", "max_trials", "initial_lambda")
        if not self.lambda_factor > 1.0:
            raise OptionError(f"lambda_factor is {self.lambda_factor}, must be > 1: the damping grows by it.")


@dataclass(frozen=True)
class AutoOptions(StopRules):
    """Options of `auto`, this library's own trust-region schedule; see `strategies.auto`."""

    max_iterations: int = 200
    """Linearizations at most; the tolerances end almost every run long before."""
    function_tolerance: float = 1e-7
    """Stop when an accepted step changes chi2 by no more than this fraction of it, and no more is to be had:
    in a dogleg see `remaining_tolerance`; of damped steps (bundle adjustment) the quadratic model must
    promise no more with a weak damping, or ten steps in a row be as small and, continued as a geometric
    series, promise no more than ten times this."""
    gradient_tolerance: float = 1e-12
    """Stop when the largest entry of b is no larger than this."""
    step_tolerance: float = 1e-10
    """Stop when the largest entry of an accepted dx is no larger than this."""
    max_trials: int = 40
    """Trials in one iteration before giving up."""
    relax_above: float = 0.5
    """Where the first iteration leaves more than this fraction of chi2, or the third more than 1 per residual
    or a twentieth and still falling, try the estimates of `strategies.relaxation` too, and go on from the
    better point (see `contest`). Not where chi2 at the start is no more than 2 per residual and all
    steps were Gauss-Newton's. `inf` never does."""
    reseat_gain: float = 1e-3
    """Where chi2 first falls slowly, and at the end, eliminated landmarks with a large chi2 are tried in
    other places (`strategies.retriangulation`). Go on there if that lowers chi2 by this fraction or more;
    `inf`: never."""
    contest: bool = True
    """Where poses and points of a map may have ended in one of several minima (the steps were not
    Gauss-Newton's, or a robust kernel is not convex, and no proof says otherwise), run gn, dogleg and lm from
    the start, too, and go on from the lowest point (`strategies.multi_start`)."""
    patience: float = 2e11
    """A graph of poses without robust kernels whose chi2 is above 10 per residual (closures contradict each
    other) is given up once chi2 has fallen by less than a tenth over so many operations of factorizations on
    the CPU, and 5 iterations or more. `inf`: never. 2e11 are 5 to 20 seconds of one core; systems that are
    factorized at once never get there."""
    remaining_tolerance: float = 1e-9
    """In a dogleg, `function_tolerance` waits while the last two decreases, continued as a geometric series,
    promise a further decrease of more than this fraction of chi2."""
    slow_tolerance: float = 0.0
    """Of damped steps with a smaller `function_tolerance`: ten in a row with a weak damping end the run, too,
    where each changes chi2 by no more than this fraction and, continued as a geometric series, they promise
    no more than ten times this."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_positive(self, "max_trials", "relax_above", "reseat_gain", "patience", "remaining_tolerance")
        if not self.slow_tolerance >= 0.0:
            raise OptionError(f"slow_tolerance is {self.slow_tolerance}, must be >= 0.")


def _require_positive(options: object, *names: str) -> None:
    for name in names:
        if not getattr(options, name) > 0:
            raise OptionError(f"{name} is {getattr(options, name)}, must be > 0.")


_CLASSES: tuple[type, ...] = (GaussNewtonOptions, LevenbergMarquardtOptions, DoglegOptions, AutoOptions)
for _class in _CLASSES:
    _class.__init__ = knows_its_options(_class.__init__)  # type: ignore[misc]
