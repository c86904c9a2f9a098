"""`graphopt g2o`: the g2o program's flags, messages and files.

    graphopt g2o -i 10 -solver lm_var_cholmod -o out.g2o in.g2o

Solver names are g2o's: an algorithm (gn, lm, dl), the block sizes (var, fix3_2, fix6_3, fix7_3) and a
linear solver. The linear solver's name chooses among ours: eigen, cholmod and csparse are our sparse
Cholesky. `add_parser` is for the main parser; `main(words)` runs the command alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

INT_MAX = 2**31 - 1

_ALGORITHMS = {"gn": "GaussNewton", "lm": "Levenberg", "dl": "Dogleg"}
_SIZES = {"var": "X", "fix3_2": "SE2", "fix6_3": "SE3", "fix7_3": "Sim3"}
_BACKENDS = {"": "CSparse", "_eigen": "Eigen", "_cholmod": "Cholmod", "_csparse": "CSparse"}


def solver_names() -> dict[str, tuple[str, str, str, bool]]:
    """Name -> (algorithm, size, linear solver, needs marginalized landmarks)."""
    names: dict[str, tuple[str, str, str, bool]] = {}
    for algorithm in _ALGORITHMS:
        for size, suffix in _SIZES.items():
            for backend, linear in _BACKENDS.items():
                names[f"{algorithm}_{size}{backend}"] = (algorithm, suffix, linear, size != "var")
        for kind, linear in (("dense", "Dense"), ("pcg", "PCG")):
            names[f"{algorithm}_{kind}"] = (algorithm, "X", linear, False)
            for size, suffix in _SIZES.items():
                if size != "var":
                    names[f"{algorithm}_{kind}{size.removeprefix('fix')}"] = (algorithm, suffix, linear, True)
    return names


def add_flags(parser: argparse.ArgumentParser) -> None:
    """g2o's flags; they have one dash."""
    add = parser.add_argument
    add(
        "-i",
        dest="iterations",
        type=int,
        default=5,
        metavar="N",
        help="iterations; negative: stop by the gain (5)",
    )
    add(
        "-gain",
        type=float,
        default=1e-6,
        metavar="X",
        help="gain below which to stop if -i is negative (1e-6)",
    )
    add(
        "-ig",
        dest="gain_iterations",
        type=int,
        default=INT_MAX,
        metavar="N",
        help="iterations at most with -gain",
    )
    add("-v", dest="verbose", action="store_true", help="a line per iteration")
    add("-guess", action="store_true", help="initial guess from a spanning tree")
    add("-guessOdometry", dest="guess_odometry", action="store_true", help="initial guess from odometry")
    add("-inc", dest="incremental", action="store_true", help="add the edges by and by")
    add("-update", type=int, default=10, metavar="N", help="with -inc: optimize after N new poses (10)")
    add(
        "-lambdaInit",
        dest="lambda_init",
        type=float,
        default=0.0,
        metavar="X",
        help="first damping; 0: computed",
    )
    add("-marginalize", action="store_true", help="eliminate the landmarks")
    add("-solver", default="gn_var_cholmod", metavar="NAME", help="see -listSolvers (gn_var_cholmod)")
    add("-robustKernel", dest="robust_kernel", default="", metavar="NAME", help="see -listRobustKernels")
    add(
        "-robustKernelWidth",
        dest="robust_kernel_width",
        type=float,
        default=-1.0,
        metavar="X",
        help="its width",
    )
    add(
        "-nonSequential",
        dest="non_sequential",
        action="store_true",
        help="the robust kernel on loop closures only",
    )
    add(
        "-computeMarginals",
        dest="compute_marginals",
        action="store_true",
        help="print covariances afterwards",
    )
    add("-gaugeId", dest="gauge_id", type=int, default=-1, metavar="ID", help="fix this vertex")
    add("-gaugeList", dest="gauge_list", type=_ids, default=[], metavar="ID,ID", help="fix these vertices")
    add("-o", dest="output", default="", metavar="FILE", help="write the graph; - for standard output")
    add("-stats", default="", metavar="FILE", help="write statistics of each iteration")
    add("-summary", default="", metavar="FILE", help="append a line about the run")
    add("-listTypes", dest="list_types", action="store_true", help="list the types")
    add("-listSolvers", dest="list_solvers", action="store_true", help="list the solvers")
    add("-listRobustKernels", dest="list_robust_kernels", action="store_true", help="list the robust kernels")
    add(
        "-printSolverProperties",
        dest="print_properties",
        action="store_true",
        help="print what the solver is",
    )
    add("input", nargs="?", metavar="graph-input", help="graph file")


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Register the command with argparse's subparsers."""
    parser = commands.add_parser(
        "g2o", help="the g2o program: its flags, messages and files", description=__doc__
    )
    add_flags(parser)
    parser.set_defaults(command="g2o_command")
    return parser


def main(words: list[str] | None = None) -> int:
    """Parse and run."""
    parser = argparse.ArgumentParser(
        "graphopt g2o",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_flags(parser)
    return run(parser.parse_args(words))


def _ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",") if word]
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of ids such as 1,2,3") from None


def _say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def run(args: argparse.Namespace) -> int:
    """Do what the flags say; the exit status is g2o's."""
    if _list(args):
        return 0
    names = solver_names()
    if args.solver not in names:
        _say(f"Unknown solver '{args.solver}'. Known solvers:")
        _list_solvers()
        return 2
    if args.input is None:
        _say("graphopt g2o: no graph file given. Try: graphopt g2o -h")
        return 2
    return _Run(args, *names[args.solver]).run()


def _list(args: argparse.Namespace) -> bool:
    """Answer the -list flags; False if there were none."""
    if args.list_types:
        from graphopt.types import registry

        _say("# registered types:")
        for one in registry.all_types():
            _say(f"  {one.tag}")
    if args.list_robust_kernels:
        from graphopt.g2o import RobustKernelFactory

        _say("# robust kernels:")
        for name in RobustKernelFactory.instance().known_kernels():
            _say(f"  {name}")
    if args.list_solvers:
        _say("# available solvers:")
        _list_solvers()
    return bool(args.list_types or args.list_robust_kernels or args.list_solvers)


def _list_solvers() -> None:
    for name, (algorithm, suffix, linear, marginalizes) in solver_names().items():
        about = f"{_ALGORITHMS[algorithm]}: block sizes {suffix}, {linear}"
        _say(f"  {name:18s} {about}{', eliminates landmarks' if marginalizes else ''}")


class _Run:
    """One run of the command."""

    def __init__(
        self, args: argparse.Namespace, algorithm: str, suffix: str, linear: str, marginalizes: bool
    ):
        from graphopt import g2o

        self.g2o = g2o
        self.args = args
        self.optimizer = g2o.SparseOptimizer()
        self.optimizer.set_verbose(args.verbose)
        solver = getattr(g2o, f"BlockSolver{suffix}")(getattr(g2o, f"LinearSolver{linear}{suffix}")())
        method = getattr(g2o, f"OptimizationAlgorithm{_ALGORITHMS[algorithm]}")(solver)
        if args.lambda_init > 0.0 and algorithm == "lm":
            method.set_user_lambda_init(args.lambda_init)
        self.optimizer.set_algorithm(method)
        self.marginalizes = marginalizes
        if args.print_properties:
            _say(f"# {args.solver}: {_ALGORITHMS[algorithm]}, block sizes {suffix}, linear solver {linear}")

    def run(self) -> int:
        """Read, optimize, write."""
        args, optimizer = self.args, self.optimizer
        _say(f"Read input from {args.input}")
        if not optimizer.load("/dev/stdin" if args.input == "-" else args.input):
            _say(f"Error loading graph {args.input}")
            return 2
        _say(f"Loaded {len(optimizer.vertices())} vertices\nLoaded {len(optimizer.edges())} edges")
        if not optimizer.vertices():
            _say("Graph contains no vertices")
            return 1
        status = self._prepare()
        return status or (self._incremental() if args.incremental else self._batch())

    # ---------------------------------------------------------------- preparation

    def _prepare(self) -> int:
        status = self._fix_gauge()
        if not status and (self.args.marginalize or self.marginalizes):
            self._marginalize()
        return status or self._set_robust_kernel()

    def _fix_gauge(self) -> int:
        args, optimizer = self.args, self.optimizer
        has_freedom = optimizer.gauge_freedom()
        wanted = args.gauge_list or ([args.gauge_id] if args.gauge_id >= 0 else [])
        if wanted:
            _say(f"Fixing gauges: {' '.join(map(str, wanted))}")
            for id in wanted:
                vertex = optimizer.vertex(id)
                if vertex is None:
                    _say(f"fatal, not found the vertex of id {id} in the gaugeList")
                    return 2
                vertex.set_fixed(True)
            return 0
        if not has_freedom:
            _say("# graph is fixed by priors or nodes are already fixed")
            return 0
        gauge = optimizer.find_gauge()
        if gauge is None:
            _say("# cannot find a vertex to fix in this thing")
            return 2
        _say(f"# graph is fixed by node {gauge.id()}")
        gauge.set_fixed(True)
        return 0

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
        if factory.construct(args.robust_kernel) is None:
            _say(f"Unknown Robust Kernel: {args.robust_kernel}. Known: {', '.join(factory.known_kernels())}")
            return 2
        _say("# Preparing robust error function ... ", end="")
        for edge in self.optimizer.edges():
            if args.non_sequential and not self._is_loop_closure(edge):
                continue
            kernel = factory.construct(args.robust_kernel)
            assert kernel is not None
            if args.robust_kernel_width > 0.0:
                kernel.set_delta(args.robust_kernel_width)
            edge.set_robust_kernel(kernel)
        _say("done.")
        return 0

    def _is_loop_closure(self, edge: Any) -> bool:
        """Between two poses whose ids are not neighbours."""
        vertices = edge.vertices()
        largest = max(self.optimizer.dimensions())
        if len(vertices) != 2 or any(one.dimension() != largest for one in vertices):
            return False
        return abs(vertices[0].id() - vertices[1].id()) != 1

    # ---------------------------------------------------------------- optimization

    def _iterations(self) -> int:
        args = self.args
        if args.iterations >= 0:
            return args.iterations
        _say("# setup termination criterion based on the gain of the iteration")
        action = self.g2o.SparseOptimizerTerminateAction()
        action.set_gain_threshold(args.gain)
        action.set_max_iterations(args.gain_iterations)
        self.optimizer.add_post_iteration_action(action)
        return args.gain_iterations

    def _batch(self) -> int:
        args, optimizer = self.args, self.optimizer
        optimizer.initialize_optimization()
        optimizer.compute_active_errors()
        load_chi2 = optimizer.active_chi2()
        _say(f"Initial chi2 = {load_chi2:.6f}")
        if args.guess or args.guess_odometry:
            cost = self.g2o.EstimatePropagatorCostOdometry(optimizer) if args.guess_odometry else None
            optimizer.compute_initial_guess(cost)
        optimizer.compute_active_errors()
        initial_chi2 = optimizer.active_chi2()
        if args.stats:
            optimizer.set_compute_batch_statistics(True)
        iterations = self._iterations()
        start = time.perf_counter()
        done = optimizer.optimize(iterations)
        seconds = time.perf_counter() - start
        if iterations > 0 and done == 0:
            _say("Cholesky failed, result might be invalid")
        elif args.compute_marginals:
            self._print_marginals()
        optimizer.compute_active_errors()
        self._report(initial_chi2, optimizer.active_chi2(), done, seconds)
        return self._save()

    def _incremental(self) -> int:
        """Add the edges in the order of their largest id; optimize after each `-update` new poses."""
        optimizer, args = self.optimizer, self.args
        edges = sorted(
            optimizer.edges(), key=lambda one: (max(v.id() for v in one.vertices()), one.internal_id())
        )
        for edge in edges:
            optimizer.remove_edge(edge)
        largest = max(optimizer.dimensions())
        known = {id(v) for v in optimizer.vertices().values() if v.fixed()}
        new_poses = 0
        for edge in edges:
            fresh = [one for one in edge.vertices() if id(one) not in known]
            others = set(edge.vertices()) - set(fresh)
            if len(fresh) == 1 and edge.initial_estimate_possible(others, fresh[0]) > 0.0:
                edge.initial_estimate(others, fresh[0])
            new_poses += sum(one.dimension() == largest for one in fresh)
            known.update(map(id, fresh))
            optimizer.add_edge(edge)
            if new_poses >= args.update:
                new_poses = 0
                optimizer.initialize_optimization()
                optimizer.optimize(max(args.iterations, 1))
        return self._batch()

    # ---------------------------------------------------------------- results

    def _print_marginals(self) -> None:
        optimizer = self.optimizer
        free = optimizer.index_mapping()
        pairs = [(i, i) for i in range(len(free))] + [(i - 1, i) for i in range(1, len(free))]
        matrix, good = optimizer.compute_marginals(pairs)
        if not good:
            _say("Cholesky failed, no marginals")
            return
        for i, vertex in enumerate(free):
            _say(f"Vertex id:{vertex.id()}")
            for row in (i, i - 1) if i else (i,):
                _say(f"inv block :{row}, {i}")
                block = matrix.block(row, i)
                assert block is not None
                _say("\n".join(" ".join(f"{value:12.6g}" for value in line) for line in block))

    def _report(self, initial_chi2: float, final_chi2: float, done: int, seconds: float) -> None:
        args, optimizer = self.args, self.optimizer
        if args.stats:
            _say(f'writing stats to file "{args.stats}" ... ', end="")
            with open(args.stats, "w") as file:
                file.writelines(_statistics_line(one) for one in optimizer.batch_statistics())
            _say("done.")
        if args.summary:
            entries = {
                "filename": args.input,
                "n_vertices": len(optimizer.vertices()),
                "n_edges": len(optimizer.edges()),
                "initialChi": f"{initial_chi2:.9g}",
                "finalChi": f"{final_chi2:.9g}",
                "solver": args.solver,
                "robustKernel": args.robust_kernel,
                "iterations": done,
                "optTime": f"{seconds:.6f}",
            }
            with open(args.summary, "a") as file:
                file.write(", ".join(f'{name}="{value}"' for name, value in entries.items()) + "\n")

    def _save(self) -> int:
        from graphopt import io
        from graphopt.g2o import files

        output = self.args.output
        if not output:
            return 0
        if output == "-":
            _say("saving to stdout")
            io.write(files.graph_of(self.optimizer, 0), "/dev/stdout", format="g2o")
            return 0
        _say(f"saving {output} ... ", end="")
        good = self.optimizer.save(output)
        _say("done." if good else "failed.")
        return 0 if good else 1


_STATISTICS = (
    ("iteration", "iteration"),
    ("numVertices", "num_vertices"),
    ("numEdges", "num_edges"),
    ("chi2", "chi2"),
    ("levenbergIterations", "levenberg_iterations"),
    ("hessianDimension", "hessian_dimension"),
    ("hessianPoseDimension", "hessian_pose_dimension"),
    ("hessianLandmarkDimension", "hessian_landmark_dimension"),
    ("timeIteration", "time_iteration"),
)


def _statistics_line(one: Any) -> str:
    return "\t ".join(f"{name}= {getattr(one, attribute):.9g}" for name, attribute in _STATISTICS) + "\n"


if __name__ == "__main__":
    sys.exit(main())
