"""The command line's parsers: choices, suggestions, and how little they import."""

import argparse
import ast
import importlib
import json
import re
from pathlib import Path

import pytest
from processes import python

import graphopt
from graphopt import option_names
from graphopt.cli import main as entry
from graphopt.cli import parsers, vib
from graphopt.errors import OptionError

COMMANDS = ("optimize", "info", "convert", "generate", "devices")


def usage_error(*words):
    """Return the message of a command line that cannot be understood."""
    with pytest.raises(parsers.UsageError) as error:
        parsers.parse(words, "0")
    return str(error.value)


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("optimise", "a.g2o"), "optimize"),
        (("optimize", "a.g2o", "--metod", "lm"), "--method"),
        (("optimize", "--metod=lm"), "--method"),
        (("optimize", "a.g2o", "--method", "dogleg2"), "dogleg"),
        (("optimize", "a.g2o", "--linear-solver", "colesky"), "cholesky"),
        (("optimize", "a.g2o", "--robust-kernel", "hubr:1"), "Huber"),
        (("optimize", "a.g2o", "--device", "vulcan"), "vulkan"),
        (("optimize", "a.g2o", "--schedule", "jacobian"), "jacobians"),
        (("explain", "a.g2o", "--schedule", "EDGE_SE2=bloks"), "blocks"),
        (("optimize", "a.g2o", "--schedule", "jacobian"), "jacobians"),
        (("explain", "a.g2o", "--schedule", "EDGE_SE2=jpp"), "jp"),
        (("optimize", "a.g2o", "--initialize", "spaning-tree"), "spanning-tree"),
        (("generate", "spere", "-o", "x"), "sphere"),
        (("generate", "sphere", "-o", "x", "--lap", "3"), "--laps"),
        (("info", "a.g2o", "--jsn"), "--json"),
    ],
)
def test_a_typo_is_answered_with_the_nearest_known_word(words, suggestion):
    """A mistyped command, option or choice names what was probably meant."""
    assert f"Did you mean '{suggestion}'?" in usage_error(*words)


def test_a_file_without_a_command_is_answered_with_the_command():
    """`graphopt FILE` says how to optimize that file."""
    assert f"graphopt optimize {__file__}" in usage_error(__file__)


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("optimize",),
        ("optimize", "a", "b"),
        ("optimize", "a", "-i", "-1"),
        ("optimize", "a", "-i", "x"),
        ("optimize", "a", "--time-limit", "nan"),
        ("optimize", "a", "--time-limit", "-1"),
        ("optimize", "a", "--fix", "1,b"),
        ("optimize", "a", "--robust-kernel", "huber:"),
        ("optimize", "a", "--robust-kernel", "huber:0"),
        ("generate", "sphere"),
        ("generate", "ba", "-o", "x", "--outliers", "1.5"),
        ("convert", "a"),
    ],
)
def test_bad_usage_is_exit_status_2(words, capsys):
    """What cannot be understood ends with status 2 and a message on stderr, and nothing on stdout."""
    assert entry.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("graphopt: ")
    assert "Traceback" not in captured.err


def test_errors_are_json_on_stdout_with_json(capsys):
    """With `--json` a bad command line is one JSON object on stdout too."""
    assert entry.main(["optimize", "a", "--json", "--method", "x"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["exit_status"] == 2
    assert "--method" in document["error"]


def test_values_are_parsed():
    """Kernels, gauges and devices come out as the optimizer takes them."""
    words = ["optimize", "a", "--robust-kernel", "cauchy:2.5", "--fix", "3,-7", "--device", "vulkan:1"]
    args = parsers.parse(words, "0")
    assert args.robust_kernel == ("Cauchy", 2.5)
    assert args.fix == [3, -7]
    assert args.device == "vulkan:1"
    assert parsers.parse(["optimize", "a", "--fix=-1", "--robust-kernel", "DCS"], "0").fix == [-1]
    assert parsers.parse(["optimize", "a", "--robust-kernel", "DCS"], "0").robust_kernel == ("DCS", 1.0)


def test_kernel_names_are_those_of_the_graph():
    """The list of robust kernels, kept apart to stay light, is the graph's own."""
    from graphopt.types.robust_kernels import KERNELS

    assert tuple(kernel.name for kernel in KERNELS[1:]) == option_names.ROBUST_KERNELS


def test_names_of_tables_are_compared_nowhere():
    """What a linear solver, an algorithm or a preconditioner can do is asked of its row, not of its name."""
    names = {*option_names.LINEAR_SOLVERS, *option_names.METHODS, *option_names.PRECONDITIONERS}
    root, compared = Path(graphopt.__file__).parent, []
    for path in root.rglob("*.py"):
        if path.name == "multi_start.py":
            continue  # its candidates are a table of its own
        for node in ast.walk(ast.parse(path.read_text())):
            for side in (node.left, *node.comparators) if isinstance(node, ast.Compare) else ():
                parts = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
                texts = {part.value for part in parts if isinstance(part, ast.Constant)}
                if texts & (names - {"auto"}):
                    compared.append(f"{path.relative_to(root.parent)}:{node.lineno}: {ast.unparse(node)}")
    assert not compared, "\n".join(compared)


def test_each_set_of_names_stands_in_one_place():
    """No module has a second tuple, list, set or Literal of names that `option_names` holds."""
    sets = {name: names for name, names in vars(option_names).items() if name.isupper() and len(names) > 2}
    known = {frozenset(names) - {"auto", "none"}: name for name, names in sets.items()}
    root = Path(graphopt.__file__).parent
    copies = []
    for path in (*root.rglob("*.py"), *(root.parent / "slam_bridge").rglob("*.py")):
        if path.name == "option_names.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                texts = [element.value for element in node.elts if isinstance(element, ast.Constant)]
                copied = known.get(frozenset(texts) - {"auto", "none"})
                if len(texts) == len(node.elts) > 2 and copied is not None:
                    copies.append(f"{path.relative_to(root.parent)}:{node.lineno}: {copied}")
    assert not copies, copies


@pytest.mark.parametrize("words", [(), *((command,) for command in COMMANDS), ("generate", "ba")])
def test_help_answers_without_heavy_imports(words, tmp_path):
    """`--help` of every command ends with status 0 before numpy, scipy, rich or matplotlib are imported."""
    program = (
        "import sys\n"
        "from graphopt.cli.main import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        "    heavy = {'numpy', 'scipy', 'rich', 'matplotlib'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    # From a folder without graphopt's sources, so that the package under test is imported.
    answer = python("-c", program, *words, "--help", cwd=tmp_path)
    assert answer.stdout.startswith("usage: graphopt")


def test_schedules_by_edge_type():
    """Separated by commas or one at a time, with colons in tags; one word for all."""
    words = ["optimize", "a", "--schedule", "EDGE_SE3:QUAT=jacobians,EDGE_SE2=blocks"]
    both = {"EDGE_SE3:QUAT": "jacobians", "EDGE_SE2": "blocks"}
    assert parsers.parse(words, "0").schedule == both
    assert parsers.parse([*words, "--schedule", "EDGE_SE2=auto"], "0").schedule == {
        **both,
        "EDGE_SE2": "auto",
    }
    assert parsers.parse([*words[:2], "--schedule", "host"], "0").schedule == "host"
    assert parsers.parse(words[:2], "0").schedule == "auto"
    assert "unknown schedule 'host' of 'EDGE_SE2'" in usage_error(*words[:2], "--schedule", "EDGE_SE2=host")
    assert "'=blocks' is not TAG=NAME" in usage_error(*words[:2], "--schedule", "EDGE_SE2=auto,=blocks")


def test_no_option_is_ignored_for_visual_inertial_problems(tmp_path):
    """Each option of `optimize` is taken for .vib files or refused by name."""
    taken = {
        "input",
        "problem",
        "output",
        "max_iterations",
        "method",
        "linear_solver",
        "schur",
        "device",
        "precision",
    }
    taken |= {"configuration", "time_limit", "stats", "json", "schedule", "help", "command", "run"}
    defaults = vars(parsers.parse(["optimize", "a.vib"], "0"))
    for name in sorted(defaults.keys() - taken):
        changed = argparse.Namespace(**{**defaults, name: "another value"})
        with pytest.raises(OptionError, match=f"{name.replace('_', '-')} is for graphs"):
            vib.check(changed)
    with pytest.raises(OptionError, match=r"is written as \.vib"):
        vib.check(argparse.Namespace(**{**defaults, "output": "b.npz"}))


OLD = [
    ("optimize a --every 5", "optimize a --checkpoint-every 5"),
    ("optimize a --preconditioner hpp", "optimize a --preconditioner jacobi"),
    ("eval bal a --config llt-cpu --peer gtsam", "eval bal a --configurations llt-cpu --peers gtsam"),
    ("eval euroc --root a --mode=mono", "eval euroc --root a --modes=mono"),
    (
        "eval colmap a --fix-rigs --fix-points",
        "eval colmap a --no-refine-sensor-from-rig --no-refine-points3D",
    ),
    (
        "eval colmap a --loss HUBER --loss-scale 2",
        "eval colmap a --loss-function-type HUBER --loss-function-scale 2",
    ),
    ("generate vi --like MH01 -o a --pixel-noise 1", "generate vi --like MH01 -o a --noise-pixel 1"),
    ("generate vi --like MH01 -o a --mismatches 0.1", "generate vi --like MH01 -o a --outliers 0.1"),
    ("generate vi --like MH01 -o a --truth b", "generate vi --like MH01 -o a --trajectory b"),
    ("generate vi-sequence --like MH01 -o a --start 3", "generate vi-sequence --like MH01 -o a --begin 3"),
]


@pytest.mark.parametrize(("old", "new"), OLD)
def test_old_spellings_are_taken_with_a_warning(old, new, capsys):
    """They mean the same, and stderr says the new one."""
    assert parsers.parse(old.split(), "0") == parsers.parse(new.split(), "0")
    warnings = capsys.readouterr().err.splitlines()
    assert warnings and all(
        re.fullmatch(r"graphopt: --\S+( hpp)? is now (--)?\S+\.", line) for line in warnings
    )


DECLARED = [
    ("graphopt.linear.options", "SolverOptions", ["optimize", "a"]),
    ("slam_bridge.generator.problem", "ProblemOptions", ["generate", "vi", "--like", "MH01", "-o", "a"]),
    (
        "slam_bridge.generator.images",
        "ImageOptions",
        ["generate", "vi-sequence", "--like", "MH01", "-o", "a"],
    ),
]


@pytest.mark.parametrize(("module", "name", "words"), DECLARED)
def test_flags_have_the_defaults_of_the_dataclass(module, name, words):
    """Each field has a flag, and a command line without flags makes the same options as the class."""
    options = getattr(importlib.import_module(module), name)
    given = vars(parsers.parse(words, "0"))
    chosen = {field: given[field] for field in options.__dataclass_fields__}
    if "calibration" in chosen:
        chosen["calibration"] = tuple(chosen["calibration"])
    assert options(**chosen) == options()
