"""Synthetic graphs with known ground truth, made by one seeded function per kind.

`start="truth"` gives the same measurements with the true values as estimates:

    graph = sphere(seed=3)
    truth = sphere(seed=3, start="truth")
"""

from graphopt.evaluate.datasets.bundle_adjustment import ba
from graphopt.evaluate.datasets.pose_graphs import grid, manhattan, sphere, torus
from graphopt.evaluate.datasets.published_sizes import published, street

__all__ = ["ba", "grid", "manhattan", "published", "sphere", "street", "torus"]
