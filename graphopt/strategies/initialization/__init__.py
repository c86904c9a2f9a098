"""Start values for graphs whose estimates are missing or poor.

    initialize(graph, "odometry")        poses chained along edges between neighbouring ids
    initialize(graph, "spanning-tree")   poses chained along the fewest edges from a fixed vertex
    initialize(graph, "chordal")         rotations by a linear relaxation over all edges, then translations

All three then place landmarks from the poses that measured them. Fixed vertices keep their estimates.
"""

from graphopt.option_names import INITIALIZATIONS as METHODS
from graphopt.strategies.initialization.initialize import Initialization, initialize

__all__ = ["METHODS", "Initialization", "initialize"]
