"""Many problems of one shape at once: `optimize_batch`."""

from graphopt.batch.optimize import optimize_batch
from graphopt.batch.result import BatchSummary

__all__ = ["BatchSummary", "optimize_batch"]
