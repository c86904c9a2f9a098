"""Vertices, edges, parameters and robust kernels: the objects that a graph holds."""
