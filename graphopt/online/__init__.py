"""A back end that grows: see `Online`."""

from graphopt.online.additions import Edges, Vertices
from graphopt.online.changes import Changes
from graphopt.online.report import OnlineReport, Snapshot
from graphopt.online.session import Online

__all__ = ["Changes", "Edges", "Online", "OnlineReport", "Snapshot", "Vertices"]
