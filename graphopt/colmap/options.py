"""Options of an adjustment with COLMAP's names, from its own objects of 3.12 and 4.x as well.

Every option of `pycolmap.BundleAdjustmentOptions` is taken, or refused by name where it differs from its
default. What becomes of those of Ceres stands in the tables below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np

from graphopt.errors import OptionError
from graphopt.io.extra_types import Refined
from graphopt.optimizer.options import AutoOptions, DoglegOptions
from graphopt.suggestions import knows_its_options

LOSSES = {"TRIVIAL": None, "SOFT_L1": "PseudoHuber", "CAUCHY": "Cauchy", "HUBER": "Huber"}
"""COLMAP's loss functions -> robust kernels of the same formula."""
GAUGES = ("UNSPECIFIED", "TWO_CAMS_FROM_WORLD", "THREE_POINTS")
_CHI2_95_OF_3 = 7.814727903251179
_KINDS: dict[Any, tuple[tuple[type, ...], str]] = {
    "bool": ((bool, np.bool_), "True or False"),
    "int": ((int, np.integer), "a whole number"),
    "float": ((int, float, np.integer, np.floating), "a number"),
    "str": ((str,), "a name such as 'TRIVIAL'"),
}
"""Annotations of fields -> what their values are, and a word for it."""


def check_types(options: Any) -> None:
    """`OptionError` for a field of a dataclass whose value is of another kind than its annotation says."""
    for each in fields(options):
        value = getattr(options, each.name)
        kinds, words = _KINDS.get(each.type, ((object,), ""))
        if not isinstance(value, kinds) or (each.type in ("int", "float") and isinstance(value, bool)):
            raise OptionError(f"{each.name} is {value!r}, expected {words}.")


@dataclass(frozen=True)
class Options:
    """What is refined and how; names and defaults are those of `pycolmap.BundleAdjustmentOptions`."""

    refine_focal_length: bool = True
    """Focal lengths."""
    refine_principal_point: bool = False
    """Principal points."""
    refine_extra_params: bool = True
    """Distortion parameters."""
    refine_rig_from_world: bool = True
    """The poses."""
    refine_sensor_from_rig: bool = True
    """The places of cameras on their rigs, but for the reference."""
    refine_points3D: bool = True
    """The points."""
    loss_function_type: str = "TRIVIAL"
    """TRIVIAL, SOFT_L1, CAUCHY or HUBER."""
    loss_function_scale: float = 1.0
    """[px]."""
    min_track_length: int = 0
    """Points with fewer observations stay where they are, and these observations do not take part."""
    constant_images: Collection[int] = ()
    """Ids of images whose frames stay where they are."""
    constant_cameras: Collection[int] = ()
    """Ids of cameras whose intrinsics stay."""
    constant_rig_from_world_rotation: bool = False
    """Frames move, but do not turn."""
    print_summary: bool = False
    """Print what COLMAP prints at the end (`pycolmap.BundleAdjustmentOptions` have True)."""

    def __post_init__(self) -> None:
        check_types(self)
        _check_loss("loss_function", self.loss_function_type, self.loss_function_scale)

    @property
    def refined(self) -> Refined:
        """Which intrinsics move."""
        return Refined(self.refine_focal_length, self.refine_principal_point, self.refine_extra_params)


@dataclass(frozen=True)
class PriorOptions:
    """How priors count; names and defaults are those of `pycolmap.PosePriorBundleAdjustmentOptions`."""

    prior_position_fallback_stddev: float = 1.0
    """[m] of a position without covariance."""
    prior_position_loss_function_type: str = "TRIVIAL"
    prior_position_loss_scale: float = _CHI2_95_OF_3**0.5
    """Of the whitened error, dimensionless."""
    alignment_max_error: float = 0.0
    """[m] up to which RANSAC counts a position as an inlier; 0: the radius of 95 % confidence at the median
    variance of the priors, as COLMAP takes it."""
    alignment_confidence: float = 0.99
    alignment_max_num_trials: int = 10_000
    gravity_stddev: float | None = None
    """[rad] of the priors' gravity directions; None: they do not count, as in COLMAP, unless a
    `graphopt.colmap.PosePrior` has a `gravity_stddev` of its own."""
    gravity_direction: tuple[float, float, float] = (0.0, 1.0, 0.0)
    """Of gravity in the world; COLMAP's is +y."""

    def __post_init__(self) -> None:
        check_types(self)
        _check_loss(
            "prior_position_loss", self.prior_position_loss_function_type, self.prior_position_loss_scale
        )
        for name in ("prior_position_fallback_stddev", "alignment_max_num_trials"):
            if not getattr(self, name) > 0:
                raise OptionError(f"{name} is {getattr(self, name)}, must be > 0.")
        if self.alignment_max_error < 0.0 or not 0.0 < self.alignment_confidence < 1.0:
            raise OptionError("alignment_max_error must be >= 0 and alignment_confidence between 0 and 1.")


def _check_loss(name: str, kind: str, scale: float) -> None:
    if kind not in LOSSES:
        raise OptionError(f"{name}_type is '{kind}', expected one of {', '.join(LOSSES)}.")
    if not scale > 0.0:
        raise OptionError(f"{name}_scale is {scale}, must be > 0.")


@dataclass(frozen=True)
class Config:
    """Which part of a model takes part, and what is constant: `pycolmap.BundleAdjustmentConfig` as values."""

    images: frozenset[int]
    variable_points: frozenset[int] = frozenset()
    """Take part with all their observations, also those in other images, which are constant."""
    constant_points: frozenset[int] = frozenset()
    ignored_points: frozenset[int] = frozenset()
    constant_cam_intrinsics: frozenset[int] = frozenset()
    constant_rig_from_world_poses: frozenset[int] = frozenset()
    """Ids of frames."""
    constant_sensor_from_rig_poses: frozenset[int] = frozenset()
    """Ids of cameras."""
    fixed_gauge: str = "UNSPECIFIED"
    """One of `GAUGES`."""
    source: Any = field(default=None, repr=False, compare=False)
    """The pycolmap config that this was made of, whose order a gauge by three points depends on."""

    def __post_init__(self) -> None:
        if self.fixed_gauge not in GAUGES:
            raise OptionError(f"fixed_gauge is '{self.fixed_gauge}', expected one of {', '.join(GAUGES)}.")
        for other, name in ((self.constant_points, "constant"), (self.variable_points, "variable")):
            both = self.ignored_points & other
            if both:
                raise OptionError(f"point {min(both)} is to be ignored and {name} at once.")


def config_of(config: Any) -> Config:
    """`Config` from ours or pycolmap's."""
    if isinstance(config, Config):
        return config
    if not hasattr(config, "constant_rig_from_world_poses") or not hasattr(config, "images"):
        kind = type(config).__name__
        raise OptionError(
            f"config is a {kind}, expected graphopt.colmap.Config or pycolmap.BundleAdjustmentConfig of "
            "pycolmap 3.12 or later."
        )
    sensors = [(_name(sensor.type), int(sensor.id)) for sensor in config.constant_sensor_from_rig_poses]
    gauge = getattr(config, "fixed_gauge", "UNSPECIFIED")
    return Config(
        images=frozenset(config.images),
        variable_points=frozenset(config.variable_points),
        constant_points=frozenset(config.constant_points),
        ignored_points=frozenset(getattr(config, "ignored_points", ())),
        constant_cam_intrinsics=frozenset(config.constant_cam_intrinsics),
        constant_rig_from_world_poses=frozenset(config.constant_rig_from_world_poses),
        constant_sensor_from_rig_poses=frozenset(id_ for kind, id_ in sensors if kind == "CAMERA"),
        fixed_gauge=_name(gauge() if callable(gauge) else gauge),
        source=config,
    )


def _name(member: Any) -> str:
    """Name of a member of an enumeration of pycolmap or pyceres."""
    return getattr(member, "name", str(member).rpartition(".")[2])


_CLASSES: tuple[type, ...] = (Options, PriorOptions, Config)
for _class in _CLASSES:
    _class.__init__ = knows_its_options(_class.__init__)  # type: ignore[misc]


class Settings(NamedTuple):
    """What options say: to the problem, and to `graphopt.optimize`."""

    options: Options
    optimize: dict[str, Any]


_SOLVERS: dict[str, dict[str, str]] = {
    "DENSE_SCHUR": {"linear_solver": "dense"},
    "SPARSE_SCHUR": {"linear_solver": "cholesky"},
    "ITERATIVE_SCHUR": {"linear_solver": "pcg"},
    "DENSE_NORMAL_CHOLESKY": {"linear_solver": "dense", "schur": "off"},
    "SPARSE_NORMAL_CHOLESKY": {"linear_solver": "cholesky", "schur": "off"},
    "CGNR": {"linear_solver": "pcg", "schur": "off"},
}
"""Ceres' linear solvers, where auto_select_solver_type is off -> options of `graphopt.optimize`."""
_PRECONDITIONERS = {"SCHUR_JACOBI": "schur_jacobi", "JACOBI": "jacobi"}
_RULES = {
    "max_num_iterations": "max_iterations",
    "function_tolerance": "function_tolerance",
    "gradient_tolerance": "gradient_tolerance",
}
"""Ceres' stop rules -> those of `AutoOptions`; tolerances at pycolmap's defaults are `auto_options`' own."""
_FUNCTION_TOLERANCE = 1e-9
"""COLMAP's is 0: it goes on until the gradient is small. In a curved valley, where intrinsics are hardly
determined, decreases of 1e-7 are followed by thousands more, and by larger ones."""
_DOGLEG: dict[str, Any] = {
    "function_tolerance": _FUNCTION_TOLERANCE,
    "gradient_tolerance": 1e-12,
    "step_tolerance": 1e-10,
}
"""g2o's dogleg has none."""
_SLOW_TOLERANCE = 5e-8
"""Where points recede, steps that nothing holds back gain less and less, and 5e-7 in all."""
_LOCAL: dict[str, Any] = {"relax_above": math.inf, "reseat_gain": math.inf, "contest": False}


def auto_options(**rules: Any) -> AutoOptions:
    """Descend from where the model is, as COLMAP does, and as far; rules: fields of `AutoOptions` instead.

    Landmarks that are placed anew may come to lie behind their cameras, where COLMAP's residuals are zero.
    """
    ends: dict[str, Any] = {"function_tolerance": _FUNCTION_TOLERANCE, "slow_tolerance": _SLOW_TOLERANCE}
    return AutoOptions(**{**({} if "function_tolerance" in rules else ends), **_LOCAL, **rules})


_SHOWN = {"minimizer_progress_to_stdout": True, "logging_type": "PER_MINIMIZER_ITERATION"}
"""Options of Ceres that print a line per iteration -> at which value."""
_DIRECT: dict[str, Callable[[Any], dict[str, Any]]] = {
    "max_solver_time_in_seconds": lambda value: {"time_limit": value},
    "use_explicit_schur_complement": lambda value: {"schur": "explicit"} if value else {},
    "max_linear_solver_iterations": lambda value: {"pcg_iterations": value},
    "num_threads": lambda value: {"num_threads": value} if value > 0 else {},
}
_SEEN_ELSEWHERE = {
    *("use_gpu", "gpu_index", "auto_select_solver_type", "linear_solver_type", "preconditioner_type"),
    *("trust_region_strategy_type", "dogleg_type", "backend"),
}


def settings_of(options: Any, defaults: Any = None) -> Settings:
    """`Options`, and what pycolmap's options say to `graphopt.optimize`.

    defaults: pycolmap's options that ask for nothing; None: pycolmap's own defaults.
    `OptionError` names options that differ from pycolmap's defaults and have no meaning here.
    """
    if isinstance(options, Settings):
        return options
    if options is None or isinstance(options, Options):
        return Settings(options or Options(), {})
    if not hasattr(options, "refine_focal_length") or not hasattr(options, "todict"):
        kind = type(options).__name__
        raise OptionError(f"options are a {kind}, expected Options or pycolmap.BundleAdjustmentOptions.")
    given, known = _flat(options.todict()), _flat((defaults or type(options)()).todict())
    changed = {name: value for name, value in given.items() if value != known[name]}
    own = {field.name for field in fields(Options)} - {"constant_images", "constant_cameras"}
    chosen = {name: given[name] for name in own & given.keys()}
    chosen["loss_function_type"] = _name(given["loss_function_type"])
    taken = {*own, *_RULES, *_SHOWN, *_DIRECT, *_SEEN_ELSEWHERE}
    unknown = sorted(changed.keys() - taken)
    if unknown:
        raise OptionError(
            f"{', '.join(unknown)}: options of Ceres or Caspar that have no meaning here. Leave them at "
            f"their defaults; taken are {', '.join(sorted(taken))}, and, as keywords, those of "
            "graphopt.optimize, such as linear_solver."
        )
    if "backend" in changed:
        raise OptionError(
            f"backend is {_name(changed['backend'])}: the solver is graphopt's own. Leave it at CERES and "
            "pass device='vulkan' for a GPU."
        )
    return Settings(Options(**chosen), _optimize_settings(given, changed))


def _optimize_settings(given: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for name in _DIRECT.keys() & changed.keys():
        settings |= _DIRECT[name](changed[name])
    if changed.get("use_gpu"):
        number = str(given.get("gpu_index", "-1"))
        if number != "-1" and not number.isdigit():
            raise OptionError(f"gpu_index is '{number}', expected one number, or -1 for any.")
        settings["device"] = f"vulkan:{number}" if number.isdigit() else "vulkan"
    is_chosen = not given.get("auto_select_solver_type", False)  # pycolmap 3.12 has no such switch
    if is_chosen and changed.keys() & {"auto_select_solver_type", "linear_solver_type"}:
        settings |= _solver_settings(given, changed)
    rules = {_RULES[name]: changed[name] for name in _RULES.keys() & changed.keys()}
    rules["max_iterations"] = given["max_num_iterations"]  # a budget, whoever set it
    if _name(given.get("trust_region_strategy_type", "LEVENBERG_MARQUARDT")) == "DOGLEG":
        if _name(given.get("dogleg_type", "TRADITIONAL_DOGLEG")) != "TRADITIONAL_DOGLEG":
            raise OptionError("dogleg_type is SUBSPACE_DOGLEG, expected TRADITIONAL_DOGLEG.")
        settings["method"] = "dogleg"
        settings["options"] = DoglegOptions(scaled=True, **(_DOGLEG | rules))
    elif rules.keys() - {"max_iterations"}:
        settings["options"] = auto_options(**rules)
    else:
        settings["max_iterations"] = rules["max_iterations"]
    if any(name in changed and _name(changed[name]) == str(value) for name, value in _SHOWN.items()):
        settings["verbose"] = True
    return settings


def _solver_settings(given: dict[str, Any], changed: dict[str, Any]) -> dict[str, str]:
    kind = _name(given["linear_solver_type"])
    if kind not in _SOLVERS:
        raise OptionError(f"linear_solver_type is {kind}, expected one of {', '.join(_SOLVERS)}.")
    settings = dict(_SOLVERS[kind])
    if kind == "ITERATIVE_SCHUR":
        preconditioner = _name(given["preconditioner_type"])
        if preconditioner not in _PRECONDITIONERS:
            known = ", ".join(_PRECONDITIONERS)
            raise OptionError(f"preconditioner_type is {preconditioner}, expected one of {known}.")
        settings["preconditioner"] = _PRECONDITIONERS[preconditioner]
        if preconditioner == "JACOBI":
            if "use_explicit_schur_complement" in changed:
                raise OptionError(
                    "use_explicit_schur_complement is for the preconditioner SCHUR_JACOBI, as in Ceres; "
                    "preconditioner_type is JACOBI."
                )
            settings["schur"] = "implicit"
    elif "preconditioner_type" in changed:
        raise OptionError(f"preconditioner_type is for ITERATIVE_SCHUR, linear_solver_type is {kind}.")
    return settings


_PRIOR_NAMES = {
    "max_error": "alignment_max_error",
    "confidence": "alignment_confidence",
    "max_num_trials": "alignment_max_num_trials",
}
"""Options of pycolmap's RANSAC -> those of `PriorOptions`."""


def prior_options_of(options: Any) -> PriorOptions:
    """`PriorOptions` from ours, pycolmap's, or the defaults."""
    if options is None or isinstance(options, PriorOptions):
        return options or PriorOptions()
    if hasattr(options, "use_robust_loss_on_prior_position"):  # pycolmap 3.12
        return PriorOptions(
            prior_position_loss_function_type=(
                "CAUCHY" if options.use_robust_loss_on_prior_position else "TRIVIAL"
            ),
            prior_position_loss_scale=options.prior_position_loss_scale,
            alignment_max_error=options.ransac_max_error,
        )
    if not hasattr(options, "prior_position_fallback_stddev") or not hasattr(options, "todict"):
        kind = type(options).__name__
        raise OptionError(
            f"prior_options are a {kind}, expected PriorOptions or pycolmap.PosePriorBundleAdjustmentOptions."
        )
    given, defaults = _flat(options.todict()), _flat(type(options)().todict())
    changed = {name: value for name, value in given.items() if value != defaults[name]}
    own = {field.name for field in fields(PriorOptions)}
    unknown = sorted(changed.keys() - own - _PRIOR_NAMES.keys())
    if unknown:
        raise OptionError(
            f"{', '.join(unknown)}: options of the alignment that have no meaning here. Leave them at their "
            f"defaults; taken are {', '.join(sorted({*(own & given.keys()), *_PRIOR_NAMES}))}."
        )
    chosen = {name: given[name] for name in own & changed.keys()}
    chosen |= {_PRIOR_NAMES[name]: given[name] for name in _PRIOR_NAMES.keys() & changed.keys()}
    if "prior_position_loss_function_type" in chosen:
        chosen["prior_position_loss_function_type"] = _name(chosen["prior_position_loss_function_type"])
    return PriorOptions(**chosen)


def _flat(options: dict[str, Any]) -> dict[str, Any]:
    """Nested options by their own names; those of Caspar, which occur twice, with its name in front."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            prefix = "caspar." if name == "caspar" else ""
            found |= {f"{prefix}{inner}": leaf for inner, leaf in _flat(value).items()}
        else:
            found[name] = value
    return found
