"""How far a trajectory is from its reference: before and after optimizing a noisy sphere.

Run: python examples/trajectory_errors.py
"""

import graphopt
from graphopt.evaluate.datasets import sphere
from graphopt.evaluate.report import poses_of_graph, trajectory_errors


def main() -> None:
    """Optimize a sphere whose truth is known, and print its absolute and relative errors."""
    options = {"nodes_per_level": 30, "laps": 30, "noise_rotation": 0.02, "seed": 1}
    graph = sphere(**options)
    _, reference = poses_of_graph(sphere(**options, start="truth"))
    for moment in ("before", "after"):
        _, estimate = poses_of_graph(graph)
        errors = trajectory_errors(estimate, reference)
        print(f"{moment}: ATE {errors.ate_rmse:.3f} m, RPE {errors.rpe_translation_rmse:.4f} m per pose")
        if moment == "before":
            print(graphopt.optimize(graph).brief_report())


if __name__ == "__main__":
    main()
