"""A residual of one's own for the C library: the distance of a measured point from a circle.

graphopt export examples/cpp/circle.py --device vulkan -o build/circle      # types.txt, graph.txt, kernels
fit_circle build/circle/types.txt
fit_circle build/circle/types.txt vulkan
"""

import numpy as np

import graphopt


@graphopt.vertex_type(tag="VERTEX_CIRCLE", tangent_dim=3)
def VertexCircle(circle, delta):
    """Centre x, y and radius."""
    return circle + delta


@graphopt.edge_type(tag="EDGE_POINT_ON_CIRCLE", vertices=("VERTEX_CIRCLE",), measurement_dim=2)
def EdgePointOnCircle(circle, point):
    """Distance of the centre from the point, minus the radius."""
    return np.sqrt(np.sum((point - circle[..., :2]) ** 2, axis=-1, keepdims=True)) - circle[..., 2:3]


graph = graphopt.Graph()
graph.add_vertices(VertexCircle, [0], [[0.0, 0.0, 1.0]])
angle = np.linspace(0.0, 5.0, 20)
points = np.array([3.0, -1.0]) + 2.0 * np.stack([np.cos(angle), np.sin(angle)], axis=-1)
graph.add_edges(EdgePointOnCircle, np.zeros((20, 1), int), points, kernel="Huber", kernel_width=10.0)
