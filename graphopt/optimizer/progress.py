"""What a run says while it runs: lines on the terminal (`verbose`), records of the standard `logging` module.

Logger "graphopt.optimize": INFO what begins and how it ended, DEBUG each iteration.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from graphopt.optimizer.summary import HEAD, Iteration, Summary

logger = logging.getLogger("graphopt.optimize")


class Progress:
    """A callback that tells each iteration, and then calls the user's."""

    def __init__(self, summary: Summary, verbose: bool, callback: Callable[[Iteration], object] | None):
        self.looks_at_graph = callback is not None and getattr(callback, "looks_at_graph", True)
        self._summary, self._verbose, self._callback = summary, verbose, callback

    def __call__(self, iteration: Iteration) -> Any:
        """Tell one iteration; what the user's callback returns."""
        line = iteration.line()
        if self._verbose:
            if iteration.iteration == 0:
                print(f"{HEAD}\n{'start':>9} {self._summary.initial_chi2:16.9g}")
            print(line, flush=True)
        logger.debug("%s", line)
        return None if self._callback is None else self._callback(iteration)


def watching(
    summary: Summary, verbose: bool, callback: Callable[[Iteration], object] | None
) -> Callable[[Iteration], object] | None:
    """The callback of a run: the user's own where nobody else listens, so that nothing costs time then."""
    if not (verbose or logger.isEnabledFor(logging.DEBUG)):
        return callback
    return Progress(summary, verbose, callback)


def tell_start(summary: Summary, verbose: bool) -> None:
    """Say what begins."""
    if not (verbose or logger.isEnabledFor(logging.INFO)):
        return
    line = f"{summary.method}: {summary.vertices} vertices, {summary.edges} edges"
    if verbose:
        print(line)
    logger.info("%s", line)


def tell_end(summary: Summary, verbose: bool) -> None:
    """Say how it ended."""
    if not (verbose or logger.isEnabledFor(logging.INFO)):
        return
    line = summary.brief_report() + (f" {summary.message}" if summary.message else "")
    if verbose:
        print(line, flush=True)
    logger.info("%s", line)
