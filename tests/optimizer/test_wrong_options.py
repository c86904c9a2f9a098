"""Options of a wrong kind are refused by a sentence with the option, what it is, and what it may be."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pytest

import graphopt
from graphopt import AutoOptions, Graph, SolverOptions, compute_covariances, compute_marginals, optimize
from graphopt.errors import DeviceError, GraphOptError, OptionError
from graphopt.linear.options import SolverChanges
from graphopt.optimizer.methods import register_algorithm


def two_poses():
    """Smallest pose graph."""
    graph = Graph()
    graph.add_vertices("VERTEX_SE2", [0, 1], [[0.0, 0.0, 0.0], [1.1, 0.0, 0.0]])
    graph.add_edges("EDGE_SE2", [[0, 1]], [[1.0, 0.0, 0.0]])
    return graph


@pytest.mark.parametrize(
    "option,sentence",
    [
        ({"time_limit": "3"}, "time_limit is '3', must be a number"),
        ({"pcg_iterations": 1.5, "linear_solver": "pcg"}, "pcg_iterations is 1.5, expected a whole number"),
        ({"pcg_tolerance": "small"}, "pcg_tolerance is 'small', expected a number"),
        ({"schedule": 3}, "schedule is 3, expected a name"),
        ({"method": ["lm"]}, "method is '\\['lm'\\]', expected one of auto, lm"),
        ({"linear_solver": None}, "linear_solver is 'None', expected one of auto, cholesky"),
        ({"stop": 3}, r"stop is 3, expected an object with is_set\(\)"),
        ({"fix": 5}, "fix is 5, expected 'auto', 'none' or a list"),
    ],
)
def test_the_option_is_named(option, sentence):
    """Not what some library says when it gets such a value."""
    with pytest.raises(OptionError, match=sentence):
        optimize(two_poses(), device="cpu", **option)


@pytest.mark.parametrize("options", [3, dict, AutoOptions(), dataclass(type("Other", (), {}))])
def test_options_of_an_algorithm_are_stop_rules(options):
    """Dataclasses that derive from them."""
    with pytest.raises(OptionError, match="a dataclass derived from StopRules"):
        register_algorithm("mine", lambda options: None, options)


@pytest.mark.parametrize(
    "call, sentence",
    [
        (
            lambda graph: optimize(graph, max_iteration=3),
            "optimize has no .*Did you mean 'max_iterations'",
        ),
        (lambda graph: AutoOptions(max_iteration=3), r"AutoOptions has no .*Did you mean 'max_iterations'\?"),
        (lambda graph: graphopt.read("a.g2o", fromat="g2o"), r"Did you mean 'format'\?"),
        (lambda graph: graphopt.write(graph, "a.g2o", dialct="g2o"), r"Did you mean 'dialect'\?"),
        (lambda graph: graphopt.initialize(graph, metod="chordal"), r"Did you mean 'method'\?"),
        (lambda graph: graph.add_grid("VERTEX_XY", shap=(2, 2)), r"Did you mean 'shape'\?"),
        (lambda graph: graph.select(levl=1), r"Did you mean 'level'\?"),
        (lambda graph: compute_covariances(graph, singlar="hold"), r"Did you mean 'singular'\?"),
        (lambda graph: compute_marginals(graph, [0], devce="cpu"), r"Did you mean 'device'\?"),
        (lambda graph: graph.add_edges("EDGE_SE2", [[0, 1]], measurment=0), r"Did you mean 'measurement"),
        (lambda graph: graph.add_vertices("EDGE_SE2", [0], xyz=0), r"'xyz'\. Its options are"),
    ],
)
def test_the_nearest_name_of_a_misspelt_option_is_named(call, sentence):
    """It is an OptionError, and the TypeError that Python has for it."""
    with pytest.raises(OptionError, match=sentence) as caught:
        call(two_poses())
    assert isinstance(caught.value, TypeError)


def test_a_schedule_by_type_is_no_matter_of_the_cpu():
    """It is shown as it is written on the command line."""
    with pytest.raises(DeviceError, match="schedule 'EDGE_SE2=jacobians' is for GPUs"):
        optimize(two_poses(), device="cpu", schedule={"EDGE_SE2": "jacobians"})


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_who_cannot_be_eliminated_is_counted(device):
    """Every vertex is marked, or none is: both are told apart."""
    graph = two_poses()
    for marked in (True, False):
        graph.vertex_set("VERTEX_SE2").marginalized[:] = marked
        with pytest.raises(GraphOptError, match=r"this graph has [01] to eliminate and [01] to keep"):
            optimize(graph, device=device, linear_solver="pcg", schur="implicit")


def test_fields_of_solver_options_are_options_of_optimize():
    """All of them, with a type for editors, and a misspelt one is answered with its name."""
    assert [*SolverChanges.__annotations__] == [field.name for field in fields(SolverOptions)]
    for field in fields(SolverOptions):
        optimize(two_poses(), "gn", 1, **{field.name: field.default})
        with pytest.raises(OptionError, match=f"Did you mean '{field.name}'"):
            optimize(two_poses(), **{f"{field.name}x": field.default})
