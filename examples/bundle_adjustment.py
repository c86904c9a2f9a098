"""Bundle adjustment with wrong matches: the same scene without and with a robust kernel.

Run: python examples/bundle_adjustment.py
"""

import numpy as np

import graphopt
from graphopt.evaluate.datasets import ba
from graphopt.evaluate.report import poses_of_graph, trajectory_errors


def main() -> None:
    """Optimize a scene with 5 % outliers twice, and compare the cameras with the truth."""
    options = {"cameras": 30, "points": 1500, "camera": "expmap", "outliers": 0.05, "seed": 2}
    _, truth = poses_of_graph(ba(**options, start="truth"))
    for kernel in (None, "Huber"):
        graph = ba(**options)
        graph.set_robust_kernel(kernel, np.sqrt(5.991))  # 95 % of correct matches lie inside
        summary = graphopt.optimize(graph)
        _, cameras = poses_of_graph(graph)
        error = trajectory_errors(cameras, truth, align="none").ate_rmse
        print(f"{kernel or 'no kernel'}: {summary.brief_report()}")
        print(f"  cameras off by {1e3 * error:.1f} mm")


if __name__ == "__main__":
    main()
