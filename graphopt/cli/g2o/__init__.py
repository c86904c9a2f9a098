"""`graphopt g2o`: the g2o program's flags, messages and files.

It stands for the C++ program, so .g2o files are in its dialect unless `--dialect` names another.
`main(words)` runs the command alone.
"""

from __future__ import annotations

import argparse
import runpy
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from graphopt.cli.g2o.flags import add_flags
from graphopt.cli.g2o.solvers import SolverName, property_lines, set_properties, solver_list, solver_names
from graphopt.errors import GraphOptError

ITERATIONS, INCREMENTAL_ITERATIONS = 5, 1
ABOUT = """\
Optimize a graph with the flags, messages and files of the g2o program.

  graphopt g2o -i 10 -solver lm_var_cholmod -o out.g2o in.g2o

A solver's name is an algorithm (gn Gauss-Newton, lm Levenberg-Marquardt, dl dogleg), the block sizes (var
any, fix3_2 planar, fix6_3 in space, fix7_3 with scale) and a linear solver; -listSolvers lists them. Flags
may be written with one dash as g2o has them (-guessOdometry) or with two (--guess_odometry)."""
EXIT_STATUS = """\
exit status: 0 done, 1 empty graph or a file cannot be written, 2 bad usage or input, 3 the solver does not
suit the graph"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags to a parser, and what its help says around them."""
    parser.description, parser.epilog = ABOUT, EXIT_STATUS
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add_flags(parser)


def main(words: list[str] | None = None) -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser("graphopt g2o", allow_abbrev=False)
    add_arguments(parser)
    return run(parser.parse_args(words))


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> int:
    """Do what the flags say. 0: done; 1: empty graph, or a file cannot be written; 2: bad usage or input.

    3: the solver does not suit the graph.
    """
    for path in args.types or ():
        if not _load_types(path):
            return 2
    listed = _list(args)
    names = solver_names()
    if args.solver not in names:
        _say(f"Unknown solver '{args.solver}'. Known solvers:")
        _say("\n".join(f"  {line}" for line in solver_list()))
        return 2
    if args.solver_library:
        _say(f"# -solverlib {args.solver_library}: all solvers are there, nothing is loaded")
    if args.input is None:
        if not listed:
            _say("No input data specified: no graph file given. Try: graphopt g2o -h")
        return 0 if listed else 2
    try:
        return _Run(args, names[args.solver]).run()
    except GraphOptError as error:
        _say(f"graphopt g2o: {error}")
        return 2


def _load_types(path: str) -> bool:
    """Run a file of `-typeslib`; False after saying what is wrong in it, and where."""
    if Path(path).suffix != ".py":
        _say(f"-typeslib {path}: only Python files that register types can be loaded, see docs/types.md.")
        return False
    _say(f"# loading types {path}")
    try:
        runpy.run_path(path)
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.filename == path:
            _say(f"-typeslib {path}: {error.strerror}")
        else:
            _say(f"-typeslib {path}:{_line_in(path, error)}: {type(error).__name__}: {error}")
        return False
    return True


def _line_in(path: str, error: BaseException) -> int:
    """Last line of the file that the error passed through."""
    if isinstance(error, SyntaxError) and error.filename == path and error.lineno is not None:
        return error.lineno
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return next((line for line in reversed(lines) if line is not None), 1)


def _list(args: argparse.Namespace) -> bool:
    """Answer the -list flags on standard output, as g2o does; False if there were none."""
    lines: list[str] = []
    if args.list_solvers:
        lines += solver_list()
    if args.list_types:
        from graphopt.g2o import Factory

        lines += ["# types:", *(f"#\t{tag}" for tag in Factory.instance().known_types())]
    if args.list_robust_kernels:
        from graphopt.g2o import RobustKernelFactory

        lines += ["Robust Kernels:", *RobustKernelFactory.instance().known_kernels()]
    if lines:
        print("\n".join(lines), flush=True)
    return bool(lines)


class _Run:
    """One run of the command."""

    def __init__(self, args: argparse.Namespace, name: SolverName):
        from graphopt import g2o

        self.g2o = g2o
        self.args = args
        self.name = name
        self.optimizer = g2o.SparseOptimizer()
        self.optimizer.set_verbose(args.verbose)
        method = name.make(g2o)
        if args.lambda_init > 0.0 and name.algorithm == "Levenberg":
            method.set_user_lambda_init(args.lambda_init)
        for sentence in set_properties(method, name, args.properties):
            _say(sentence)
        self.optimizer.set_algorithm(method)
        if args.print_properties or args.properties:
            _say("\n".join(property_lines(method, name)))

    def run(self) -> int:
        """Read, optimize, write."""
        args, optimizer = self.args, self.optimizer
        if not self._can_write():
            return 1
        if not self._load():
            return 2
        _say(f"Loaded {len(optimizer.vertices())} vertices\nLoaded {len(optimizer.edges())} edges")
        if args.graph_summary:
            print(optimizer.print_graph_summary(), end="", flush=True)
            return 0
        if not optimizer.vertices():
            _say("Graph contains no vertices")
            return 1
        if not self.name.fits(optimizer.dimensions()):
            _say("The selected solver is not suitable for optimizing the given graph")
            return 3
        status = self._prepare()
        if status:
            return status
        if args.incremental:
            self._incremental()
        else:
            self._batch()
        return self._save()

    def _can_write(self) -> bool:
        """Say now what cannot be written later."""
        from graphopt.io import check_writable

        args = self.args
        try:
            for path in (args.output, args.stats, args.summary):
                if path and path != "-":
                    check_writable(path)
        except OSError as error:
            _say(f"graphopt g2o: {error.filename}: {error.strerror}. Nothing was optimized.")
            return False
        return True

    def _load(self) -> bool:
        from graphopt.g2o import files
        from graphopt.io.dialects import look_up

        path = self.args.input
        format = _format(path)
        _say("Read input from stdin" if path == "-" else f"Read input from {path} as {format.name}")
        dialect = None if self.args.dialect == "auto" else look_up(self.args.dialect, "g2o").name
        try:
            renamed = files.renamed_types(self.args.rename_types)
            source = "/dev/stdin" if path == "-" else path
            self.graph, report = files.read_with_report(source, format, renamed, dialect)
            self.dialect = report.dialect or dialect or "g2o"
            for warning in report.warnings:
                _say(f"# {warning}")
            for tag, count in report.unknown_tags.items():
                _say(f"# unknown type {tag}: {count} lines are not optimized")
            files.fill(self.optimizer, self.graph)
        except (OSError, GraphOptError) as error:
            _say(f"{error}\nError loading graph {path}")
            return False
        return True

    # ---------------------------------------------------------------- preparation

    def _prepare(self) -> int:
        status = self._fix_gauge()
        if not status and (self.args.marginalize or self.name.marginalizes):
            self._marginalize()
        if not status and self.name.landmarks_only:
            for vertex in self.optimizer.vertices().values():
                vertex.set_fixed(vertex.fixed() or vertex.dimension() != self.name.landmark_dim)
        return status or self._set_robust_kernel()

    def _fix_gauge(self) -> int:
        args, optimizer = self.args, self.optimizer
        has_freedom = optimizer.gauge_freedom()
        ids = args.gauge_list or ([args.gauge_id] if args.gauge_id >= 0 else [])
        for id in ids:
            vertex = optimizer.vertex(id)
            if vertex is None:
                _say(f"fatal, not found the vertex of id {id} in the gaugeList. Aborting")
                return 2
            vertex.set_fixed(True)
        if ids:
            _say(f"Fixing gauges: {' '.join(map(str, ids))}")
        gauge = optimizer.vertex(ids[0]) if ids else optimizer.find_gauge()
        if has_freedom and not ids:
            _say(f"# graph is fixed by node {gauge.id()}")
            gauge.set_fixed(True)
        else:
            _say("# graph is fixed by priors or already fixed vertex")
        self._warn_of_parts(gauge)
        return 0

    def _warn_of_parts(self, gauge: Any) -> None:
        """Say so if some vertices are not connected with the gauge."""
        optimizer = self.optimizer
        if optimizer.num_connected_components(-1) == 1:
            return
        dijkstra = self.g2o.HyperDijkstra(optimizer)
        dijkstra.shortest_paths(gauge, self.g2o.UniformCostFunction())
        _say("Warning: d.visited().size() != optimizer.vertices().size()")
        _say(f"visited: {len(dijkstra.visited())}\nvertices: {len(optimizer.vertices())}")

    def _marginalize(self) -> None:
        dimensions = self.optimizer.dimensions()
        if len(dimensions) < 2:
            return
        _say("# Preparing Marginalization of the Landmarks ... ", end="")
        for vertex in self.optimizer.vertices().values():
            vertex.set_marginalized(vertex.dimension() != max(dimensions))
        _say("done.")

    def _set_robust_kernel(self) -> int:
        args = self.args
        if not args.robust_kernel:
            return 0
        factory = self.g2o.RobustKernelFactory.instance()
        kernel = factory.construct(args.robust_kernel)
        if kernel is None:
            known = ", ".join(factory.known_kernels())
            _say(f"Unknown Robust Kernel: {args.robust_kernel}. Known: {known}. Going on without.")
            return 0
        _say("# Preparing robust error function ... ", end="")
        if args.robust_kernel_width > 0.0:
            kernel.set_delta(args.robust_kernel_width)
        for edge in self.optimizer.edges():
            if not args.non_sequential or _is_loop_closure(edge):
                edge.set_robust_kernel(kernel)
        _say("done.")
        return 0

    # ---------------------------------------------------------------- optimization

    def _iterations(self, default: int) -> int:
        args = self.args
        iterations = default if args.iterations is None else args.iterations
        if iterations >= 0:
            return iterations
        _say("# setup termination criterion based on the gain of the iteration")
        action = self.g2o.SparseOptimizerTerminateAction()
        action.set_gain_threshold(args.gain)
        action.set_max_iterations(args.gain_iterations)
        self.optimizer.add_post_iteration_action(action)
        return args.gain_iterations

    def _incremental(self) -> None:
        from graphopt.cli.g2o.incremental import Incremental

        args = self.args
        iterations = self._iterations(INCREMENTAL_ITERATIONS)
        Incremental(self.optimizer, iterations, args.update, args.verbose, args.gui).run()

    def _batch(self) -> None:
        from graphopt.cli.g2o import output
        from graphopt.io.files import append, write_bytes

        args, optimizer = self.args, self.optimizer
        optimizer.set_compute_batch_statistics(bool(args.stats))
        optimizer.initialize_optimization()
        optimizer.compute_active_errors()
        load_chi2 = optimizer.chi2()
        _say(f"Initial chi2 = {load_chi2:.6f}")
        self._guess()
        optimizer.compute_active_errors()
        initial_chi2 = optimizer.chi2()
        iterations = self._iterations(ITERATIONS)
        start = time.perf_counter()
        done = optimizer.optimize(iterations)
        seconds = time.perf_counter() - start
        if iterations > 0 and done == 0:
            _say("Cholesky failed, result might be invalid")
        elif args.compute_marginals:
            _say("\n".join(output.marginal_lines(optimizer)) or "Cholesky failed, no marginals")
        optimizer.compute_active_errors()
        for line in output.behind_lines(optimizer):
            _say(line)
        if args.summary:
            values = {
                **output.count_summary(optimizer),
                "filename": args.input,
                "load_chi": load_chi2,
                "init_chi": initial_chi2,
                "final_chi": optimizer.chi2(),
                "solver": args.solver,
                "robustKernel": int(bool(args.robust_kernel)),
                "maxIterations": iterations,
                "realIterations": done,
                "seconds": seconds,
            }
            append(args.summary, output.summary_text(values))
        if args.stats:
            _say(f'writing stats to file "{args.stats}" ... ', end="")
            lines = map(output.statistics_line, optimizer.batch_statistics())
            write_bytes(args.stats, "".join(lines).encode())
            _say("done.")

    def _guess(self) -> None:
        args, optimizer = self.args, self.optimizer
        if args.guess:
            optimizer.compute_initial_guess()
        elif args.guess_odometry:
            optimizer.compute_initial_guess(self.g2o.EstimatePropagatorCostOdometry(optimizer))
        if self.name.starts_linear:
            from graphopt.strategies.initialization import initialize

            graph = optimizer.graph()
            initialize(graph)
            for id, vertex in optimizer.vertices().items():
                vertex.set_estimate_data(graph.vertex(id).estimate)

    # ---------------------------------------------------------------- results

    def _result(self) -> Any:
        """The graph that was read, in its order and with its unknown lines, at the present estimates."""
        from graphopt.g2o import files

        solved, graph = files.graph_of(self.optimizer, 0), self.graph
        for vertex_set in solved.vertex_sets:
            target = graph.vertex_set(vertex_set.type)
            _, rows = graph.find_vertices(vertex_set.ids)
            target.estimate[rows], target.fixed[rows] = vertex_set.estimate, vertex_set.fixed
        return graph

    def _save(self) -> int:
        from graphopt.cli.g2o import output
        from graphopt.g2o import files
        from graphopt.g2o.files import IoFormat

        args, optimizer = self.args, self.optimizer
        try:
            if args.gnudump:
                for path in output.save_gnuplot(args.gnudump, optimizer):
                    _say(f"# saving {path} ... done.")
        except OSError as error:
            _say(f"Error while writing gnuplot files: {error}")
            return 1
        if not args.output:
            return 0
        if args.output == "-":
            _say("saving to stdout")
            files.write(self._result(), "/dev/stdout", IoFormat.G2O, self.dialect)
            return 0
        format = _format(args.output)
        _say(f"saving {args.output} in {format.name} ... ", end="")
        try:
            warnings = files.write(self._result(), args.output, format, self.dialect)
        except (OSError, GraphOptError) as error:
            _say(f"failed.\n{error}")
            return 1
        _say("done.")
        if self.graph.unparsed:
            kept = "are kept as they were" if format is IoFormat.G2O else f"have no place in {format.name}"
            warnings.append(f"{len(self.graph.unparsed)} lines of unknown types {kept}")
        for warning in warnings:
            _say(f"# {warning}")
        return 0


def _format(path: str) -> Any:
    """The format that a file name says, g2o's text otherwise."""
    from graphopt.g2o import IoFormat, IoWrapper

    return IoWrapper.format_for_file_extension(Path(path).suffix[1:]) or IoFormat.G2O


def _is_loop_closure(edge: Any) -> bool:
    """Between vertices whose ids are not neighbours, as g2o decides."""
    vertices = edge.vertices()
    return len(vertices) >= 2 and abs(vertices[0].id() - vertices[1].id()) != 1


if __name__ == "__main__":
    sys.exit(main())
