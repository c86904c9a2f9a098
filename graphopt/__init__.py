"""Graph optimization for robotics and vision: g2o's graphs, files and answers, on any CPU and GPU.

    import graphopt
    graph = graphopt.read("sphere2500.g2o")
    summary = graphopt.optimize(graph)
    graphopt.write(graph, "solved.g2o")

Public names stand in `__init__.pyi` and are loaded on first use, so `import graphopt` itself imports nothing
of them.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
