"""Graph optimization for robotics and vision: g2o's graphs, files and answers, on any CPU and GPU."""

__version__ = "0.1.0"
