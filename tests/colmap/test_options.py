"""Every option of pycolmap has the effect here that it has there, or is refused by its name."""

import copy
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from pycolmaps import ceres_of, ceres_summary, need, need_sensor_poses

import graphopt.colmap
from graphopt.colmap.options import prior_options_of, settings_of
from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphOptError, OptionError
from tests.colmap.test_adjustment import scene
from tests.colmap.test_config import all_images

pycolmap = pytest.importorskip("pycolmap", reason="pycolmap, the oracle of COLMAP models, is not installed")


class Runs(NamedTuple):
    """Both adjustments of one scene."""

    ours: Any
    ceres: Any
    refined: Any
    """By ours."""


PROBLEM: dict[str, Any] = {
    "refine_focal_length": False,
    "refine_principal_point": True,
    "refine_extra_params": False,
    "refine_rig_from_world": False,
    "refine_sensor_from_rig": False,
    "constant_rig_from_world_rotation": True,
    "refine_points3D": False,
    "min_track_length": 9,
    "loss_function_type": "CAUCHY",
    "loss_function_scale": 0.3,
}
"""Options that change the problem: other counts or another cost, the same in both."""
SOLVER = {
    "max_num_iterations",
    "max_solver_time_in_seconds",
    "num_threads",
    "function_tolerance",
    "gradient_tolerance",
    "auto_select_solver_type",
    "linear_solver_type",
    "preconditioner_type",
    "use_explicit_schur_complement",
    "max_linear_solver_iterations",
    "trust_region_strategy_type",
    "dogleg_type",
    "minimizer_progress_to_stdout",
    "logging_type",
    "print_summary",
    "use_gpu",
    "gpu_index",
}
"""Options of the solver, each with a test of its effect below."""


def options_of() -> Any:
    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    ceres_of(options).solver_options.max_num_iterations = 200
    return options


def leaves(given: Any, path: tuple[str, ...] = ()) -> dict[str, tuple[tuple[str, ...], Any]]:
    """Names of all options, where they are, and their values."""
    found = {}
    for name, value in given.items():
        if isinstance(value, dict):
            found |= {
                f"caspar.{leaf}" if name == "caspar" else leaf: place
                for leaf, place in leaves(value, (*path, name)).items()
            }
        else:
            found[name] = ((*path, name), value)
    return found


def put(options: Any, name: str, value: Any) -> None:
    """Set an option, of an enumeration by the name of its member."""
    *path, last = leaves(options.todict())[name][0]
    for part in path:
        options = getattr(options, part)
    before = getattr(options, last)
    is_member = hasattr(before, "name") and isinstance(value, str)
    setattr(options, last, getattr(type(before), value) if is_member else value)


def another(value: Any) -> Any:
    """Another value of the same kind."""
    if isinstance(value, bool):
        return not value
    if hasattr(value, "name"):
        return next(each for each in type(value).__members__.values() if each != value)
    if isinstance(value, str):
        return value + "1"
    if isinstance(value, int):
        return value + 1 if value < 2**31 - 1 else value - 1
    return 0.5 * value if value else 0.5


NAMES = sorted(leaves(pycolmap.BundleAdjustmentOptions().todict()))
CHOOSES = "auto_select_solver_type" in NAMES
"""Whether COLMAP's own choice of a linear solver can be switched off."""
PRIOR_NAMES = sorted(leaves(pycolmap.PosePriorBundleAdjustmentOptions().todict()))


@cache
def made() -> Any:
    """Two cameras on a rig, some tracks short, the places on the rig moved where pycolmap can do that."""
    found = scene("OPENCV", seed=71, cameras_per_rig=2 if hasattr(pycolmap.Rig, "set_sensor_from_rig") else 1)
    rng = np.random.default_rng(71)
    for frame in found.frames.values():
        pose = frame.rig_from_world
        frame.rig_from_world = pycolmap.Rigid3d(pose.rotation, pose.translation + rng.normal(0, 0.005, 3))
    for rig in found.rigs.values():
        for sensor, pose in rig.non_ref_sensors.items():
            moved = pycolmap.Rigid3d(pose.rotation, pose.translation + rng.normal(0.0, 0.01, 3))
            rig.set_sensor_from_rig(sensor, moved)
    for point in rng.permutation(sorted(found.points3D))[:80].tolist():
        seen = [(each.image_id, each.point2D_idx) for each in found.points3D[point].track.elements]
        for image, number in seen[2:]:
            found.delete_observation(image, number)
    return found


def run(options: Any, **given: Any) -> Runs:
    ours, theirs = copy.deepcopy(made()), copy.deepcopy(made())
    config = all_images(theirs)
    ceres = ceres_summary(pycolmap.create_default_bundle_adjuster(options, config, theirs))
    summary = graphopt.colmap.bundle_adjustment(ours, options, config=config, **({"device": "cpu"} | given))
    return Runs(summary, ceres, ours)


@cache
def usual(loss: str = "TRIVIAL") -> Runs:
    options = options_of()
    put(options, "loss_function_type", loss)
    return run(options)


@pytest.mark.parametrize("name", [name for name in PROBLEM if name in NAMES])
def test_options_of_the_problem(name: str) -> None:
    """The same counts and costs as COLMAP, and others than without the option."""
    if name == "refine_sensor_from_rig":
        need_sensor_poses()
    loss, options = "CAUCHY" if name == "loss_function_scale" else "TRIVIAL", options_of()
    put(options, "loss_function_type", loss)
    put(options, name, PROBLEM[name])
    runs, before = run(options), usual(loss)
    for field in ("num_residuals_reduced", "num_effective_parameters_reduced"):
        assert getattr(runs.ours, field) == getattr(runs.ceres, field)
    assert runs.ours.initial_cost == pytest.approx(runs.ceres.initial_cost, rel=1e-9)
    assert runs.ours.final_cost == pytest.approx(runs.ceres.final_cost, rel=1e-6)
    for now, then in ((runs.ours, before.ours), (runs.ceres, before.ceres)):
        assert abs(now.final_cost - then.final_cost) > 1e-4 * then.final_cost


@pytest.mark.parametrize("loss", ["TRIVIAL", "SOFT_L1", "CAUCHY", "HUBER"])
def test_losses(loss: str) -> None:
    need(pycolmap.LossFunctionType, loss)
    assert usual(loss).ours.initial_cost == pytest.approx(usual(loss).ceres.initial_cost, rel=1e-9)
    assert usual(loss).ours.final_cost == pytest.approx(usual(loss).ceres.final_cost, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "value", "ending"),
    [
        ("max_num_iterations", 1, "NO_CONVERGENCE"),
        ("max_solver_time_in_seconds", 1e-6, "NO_CONVERGENCE"),
        ("function_tolerance", 0.5, "CONVERGENCE"),
        ("gradient_tolerance", 1e9, "CONVERGENCE"),
    ],
)
def test_stop_rules(name: str, value: float, ending: str) -> None:
    """Both end earlier, above the cost at the end, for the same reason."""
    options = options_of()
    put(options, name, value)
    runs = run(options)
    assert runs.ours.termination_type.name == runs.ceres.termination_type.name == ending
    for now, then in ((runs.ours, usual().ours), (runs.ceres, usual().ceres)):
        assert now.num_successful_steps < then.num_successful_steps
        assert now.final_cost > then.final_cost


@pytest.mark.parametrize(
    ("kind", "linear_solver", "schur"),
    [
        ("DENSE_SCHUR", "dense", "explicit"),
        ("SPARSE_SCHUR", "cholesky", "explicit"),
        ("ITERATIVE_SCHUR", "pcg", ""),
        ("DENSE_NORMAL_CHOLESKY", "dense", "off"),
        ("SPARSE_NORMAL_CHOLESKY", "cholesky", "off"),
        ("CGNR", "pcg", "off"),
    ],
)
def test_linear_solvers(kind: str, linear_solver: str, schur: str) -> None:
    """Where nothing else chooses them they are those that are used, and the cost is the same."""
    options = options_of()
    if not CHOOSES and kind == ceres_of(options).solver_options.linear_solver_type.name:
        pytest.skip("the default, which COLMAP replaces in this version")
    if CHOOSES:
        put(options, "linear_solver_type", kind)
        assert not settings_of(options)[1].keys() & {"linear_solver", "schur"}  # COLMAP's choice is not ours
        put(options, "auto_select_solver_type", False)
    put(options, "linear_solver_type", kind)
    if kind == "ITERATIVE_SCHUR":
        put(options, "preconditioner_type", "SCHUR_JACOBI")
    runs = run(options)
    if CHOOSES:
        assert runs.ceres.linear_solver_type_used.name == kind
    assert runs.ours.linear_solver == linear_solver
    assert runs.ours.schur == schur or not schur
    best = min(usual().ceres.final_cost, runs.ceres.final_cost)
    assert runs.ours.final_cost <= best * (1.0 + (1e-5 if linear_solver == "pcg" else 1e-6))


def iterative(options: Any, preconditioner: str) -> Any:
    if CHOOSES:
        put(options, "auto_select_solver_type", False)
    put(options, "linear_solver_type", "ITERATIVE_SCHUR")
    put(options, "preconditioner_type", preconditioner)
    return options


def test_options_of_conjugate_gradients() -> None:
    """Preconditioner, kind of Schur complement and number of iterations of ITERATIVE_SCHUR."""
    runs = run(iterative(options_of(), "JACOBI"))
    assert runs.ceres.preconditioner_type_used.name == "JACOBI"
    assert (runs.ours.linear_solver, runs.ours.schur) == ("pcg", "implicit")
    options = iterative(options_of(), "SCHUR_JACOBI")
    put(options, "use_explicit_schur_complement", True)
    put(options, "max_num_iterations", 1)
    whole = run(options)
    assert whole.ours.schur == "explicit"
    put(options, "max_linear_solver_iterations", 1)
    cut = run(options)
    assert cut.ours.final_cost > 1.01 * whole.ours.final_cost
    assert not CHOOSES or cut.ceres.final_cost > 1.01 * whole.ceres.final_cost


def test_trust_regions() -> None:
    options = options_of()
    put(options, "trust_region_strategy_type", "DOGLEG")
    runs = run(options)
    assert runs.ceres.trust_region_strategy_type.name == "DOGLEG" and runs.ours.method == "dogleg"
    assert runs.ours.final_cost == pytest.approx(runs.ceres.final_cost, rel=1e-6)
    put(options, "dogleg_type", "SUBSPACE_DOGLEG")
    with pytest.raises(OptionError, match="dogleg_type is SUBSPACE_DOGLEG"):
        graphopt.colmap.bundle_adjustment(copy.deepcopy(made()), options, device="cpu")


def test_number_of_threads() -> None:
    """Within the call, and not after it."""
    before, seen = kernels.num_threads(), []
    options = options_of()
    put(options, "num_threads", before + 1)
    run(options, callback=lambda *_: seen.append(kernels.num_threads()))
    assert set(seen) == {before + 1} and kernels.num_threads() == before


@pytest.mark.parametrize("name", ["minimizer_progress_to_stdout", "logging_type"])
def test_progress_is_shown(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """A line per iteration."""
    options = options_of()
    put(options, name, {"logging_type": "PER_MINIMIZER_ITERATION"}.get(name, True))
    ours = copy.deepcopy(made())
    summary = graphopt.colmap.bundle_adjustment(ours, options, device="cpu")
    assert "".join(capfd.readouterr()).count("\n") >= len(summary.iterations) > 2


def test_summary_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """The same lines as COLMAP's."""
    options = options_of()
    put(options, "print_summary", True)
    level, pycolmap.logging.minloglevel = pycolmap.logging.minloglevel, 0
    try:
        run(options)
    finally:
        pycolmap.logging.minloglevel = level
    rows = [line.split(":")[0].strip() for line in capfd.readouterr().err.splitlines()]
    for name in ("Residuals", "Parameters", "Iterations", "Initial cost", "Final cost", "Termination"):
        assert rows.count(name) == 2, name


def test_gpus() -> None:
    """The one that is asked for is used, or an error; what COLMAP does then is a warning."""
    options = options_of()
    put(options, "use_gpu", True)
    ours = copy.deepcopy(made())
    summary = graphopt.colmap.bundle_adjustment(ours, options)
    assert summary.device.startswith("vulkan")
    put(options, "gpu_index", "17")
    with pytest.raises(GraphOptError, match="17"):
        graphopt.colmap.bundle_adjustment(ours, options)
    put(options, "gpu_index", "0,1")
    with pytest.raises(OptionError, match="gpu_index is '0,1'"):
        graphopt.colmap.bundle_adjustment(ours, options)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {*PROBLEM, *SOLVER}])
def test_all_other_options_are_refused_by_name(name: str) -> None:
    """So that none is ignored, also of versions to come."""
    options = pycolmap.BundleAdjustmentOptions()
    put(options, name, another(leaves(options.todict())[name][1]))
    with pytest.raises(OptionError, match=rf"^{name.replace('.', '[.]')}\b"):
        graphopt.colmap.bundle_adjustment(copy.deepcopy(made()), options, device="cpu")


TAKEN = {
    "prior_position_fallback_stddev": ("prior_position_fallback_stddev", 0.25),
    "max_error": ("alignment_max_error", 0.7),
    "confidence": ("alignment_confidence", 0.9),
    "max_num_trials": ("alignment_max_num_trials", 77),
    "prior_position_loss_function_type": ("prior_position_loss_function_type", "HUBER"),
    "prior_position_loss_scale": ("prior_position_loss_scale", 0.5),
    "use_robust_loss_on_prior_position": ("prior_position_loss_function_type", True),
    "ransac_max_error": ("alignment_max_error", 0.7),
}
"""Options of pose priors: name here, and another value; their effect is in test_priors.py."""


@pytest.mark.parametrize("name", PRIOR_NAMES)
def test_options_of_priors(name: str) -> None:
    options = pycolmap.PosePriorBundleAdjustmentOptions()
    if name in TAKEN:
        own, value = TAKEN[name]
        put(options, name, value)
        expected = "CAUCHY" if value is True else value
        assert getattr(prior_options_of(options), own) == expected
        return
    put(options, name, another(leaves(options.todict())[name][1]))
    with pytest.raises(OptionError, match=rf"^{name}: "):
        prior_options_of(options)
