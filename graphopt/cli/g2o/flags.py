"""The flags of `graphopt g2o`, by the names of all g2o programs: `-guessOdometry` and `--guess_odometry`."""

from __future__ import annotations

import argparse
from typing import Any

INT_MAX = 2**31 - 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    """g2o's flags; the older ones have one dash."""
    parser.add_argument("-help", action="help", help="show this help and end")
    _add_run_flags(parser)
    _add_solver_flags(parser)
    _add_output_flags(parser)
    parser.add_argument("input", nargs="?", metavar="graph-input", help="graph file; - for standard input")


def _number(parser: Any, *names: str, kind: Any, default: Any, help: str, dest: str) -> None:
    parser.add_argument(
        *names, dest=dest, type=kind, default=default, metavar="N" if kind is int else "X", help=help
    )


def _switch(parser: Any, *names: str, dest: str, help: str) -> None:
    parser.add_argument(*names, dest=dest, action="store_true", help=help)


def _text(parser: Any, *names: str, dest: str, help: str, metavar: str = "FILE", default: str = "") -> None:
    parser.add_argument(*names, dest=dest, default=default, metavar=metavar, help=help)


def _add_run_flags(parser: Any) -> None:
    about = "iterations; negative: stop by the gain (5; with -inc 1)"
    _number(parser, "-i", "--iterations", kind=int, default=None, dest="iterations", help=about)
    about = "gain below which to stop if -i is negative (1e-6)"
    _number(parser, "-gain", "--gain", kind=float, default=1e-6, dest="gain", help=about)
    about = "iterations at most with -gain"
    names = ("-ig", "--iterations_gain")
    _number(parser, *names, kind=int, default=INT_MAX, dest="gain_iterations", help=about)
    _switch(parser, "-v", dest="verbose", help="a line per iteration")
    _switch(parser, "-guess", "--guess", dest="guess", help="initial guess from a spanning tree")
    about = "initial guess from odometry"
    _switch(parser, "-guessOdometry", "--guess_odometry", dest="guess_odometry", help=about)
    _switch(parser, "-inc", "--inc", dest="incremental", help="add the edges by and by")
    about = "with -inc: optimize after N new poses (10)"
    _number(parser, "-update", "--update", kind=int, default=10, dest="update", help=about)
    about = "with -inc: print commands for gnuplot after each optimization"
    _switch(parser, "-guiout", "-guiOut", dest="gui", help=about)
    _number(parser, "-gaugeId", "--gauge_id", kind=int, default=-1, dest="gauge_id", help="fix this vertex")
    parser.add_argument(
        *("-gaugeList", "--gauge_list"),
        dest="gauge_list",
        type=_ids,
        default=[],
        metavar="ID,ID",
        help="fix these vertices",
    )
    about = "read tags as other tags: VERTEX_CAM=VERTEX_SE3:EXPMAP,..."
    _text(parser, "-renameTypes", "--rename_types", dest="rename_types", metavar="TAG=TAG", help=about)
    about = "layout of .g2o files: g2o (C++, the default), g2opy, or auto to look at the file"
    _text(parser, "-dialect", "--dialect", dest="dialect", metavar="NAME", default="g2o", help=about)
    about = "a Python file that registers types, run before the graph is read; may be given again"
    parser.add_argument("-typeslib", "--typeslib", dest="types", action="append", metavar="FILE", help=about)


def _add_solver_flags(parser: Any) -> None:
    about = "see -listSolvers (gn_var)"
    _text(parser, "-solver", "--solver", dest="solver", metavar="NAME", default="gn_var", help=about)
    about = "accepted for programs that pass it: all solvers are there"
    _text(parser, "-solverlib", "--solverlib", dest="solver_library", help=about)
    about = "such as initialLambda=0.0001,maxTrialsAfterFailure=2"
    names = ("-solverProperties", "--solver_properties")
    _text(parser, *names, dest="properties", metavar="NAME=X", help=about)
    names = ("-printSolverProperties", "--print_solver_properties")
    _switch(parser, *names, dest="print_properties", help="print the properties of the solver")
    about = "first damping; 0: computed"
    _number(parser, "-lambdaInit", kind=float, default=0.0, dest="lambda_init", help=about)
    _switch(parser, "-marginalize", "--marginalize", dest="marginalize", help="eliminate the landmarks")
    about = "see -listRobustKernels"
    _text(parser, "-robustKernel", "--robust_kernel", dest="robust_kernel", metavar="NAME", help=about)
    names = ("-robustKernelWidth", "--robust_kernel_width")
    _number(parser, *names, kind=float, default=-1.0, dest="robust_kernel_width", help="its width")
    about = "the robust kernel only on edges whose ids are not neighbours"
    _switch(parser, "-nonSequential", "--non_sequential", dest="non_sequential", help=about)


def _add_output_flags(parser: Any) -> None:
    names = ("-computeMarginals", "--compute_marginals")
    _switch(parser, *names, dest="compute_marginals", help="print covariances afterwards")
    about = "write the graph, as text, .json or .bin; - for standard output"
    _text(parser, "-o", "--output", dest="output", help=about)
    _text(parser, "-gnudump", dest="gnudump", help="write FILE_edges.dat and so on for gnuplot")
    _text(parser, "-stats", "--stats", dest="stats", help="write statistics of each iteration")
    _text(parser, "-summary", "--summary", dest="summary", help="append names and values about the run")
    about = "print a summary of the graph that was read, and end"
    _switch(parser, "-graphSummary", "--graph_summary", dest="graph_summary", help=about)
    _switch(parser, "-listTypes", "--list_types", dest="list_types", help="list the types")
    _switch(parser, "-listSolvers", "--list_solvers", dest="list_solvers", help="list the solvers")
    names = ("-listRobustKernels", "--list_robust_kernels")
    _switch(parser, *names, dest="list_robust_kernels", help="list the robust kernels")


def _ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of ids such as 1,2,3") from None
