"""A cache folder that cannot be written costs time in the next process, not the result of this one."""

from __future__ import annotations

from processes import python

_PROGRAM = """
import numpy as np, graphopt
graph = graphopt.Graph()
graph.add_vertices("VERTEX_SE2", [0, 1, 2], np.zeros((3, 3)))
graph.add_edges("EDGE_SE2", [[0, 1], [1, 2]], [1.0, 0.0, 0.1])
print(graphopt.optimize(graph, "gn", 2, device="vulkan").is_usable)
"""


def test_kernels_that_cannot_be_kept_are_warned_of(tmp_path):
    """The folder's name is a file's: nothing can be written there."""
    nowhere = tmp_path / "cache"
    nowhere.write_text("")
    done = python("-c", _PROGRAM, environment={"GRAPHOPT_CACHE_DIR": str(nowhere)})
    assert done.stdout == "True\n"
    assert "was not saved" in done.stderr and "Traceback" not in done.stderr
