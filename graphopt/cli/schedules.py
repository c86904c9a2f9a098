"""The option `--schedule`: one schedule for all edges, or some by edge type and vertex type."""

from __future__ import annotations

import argparse
from typing import Any

from graphopt.option_names import EDGE_SCHEDULES, SCHEDULES, SUMMATIONS
from graphopt.suggestions import did_you_mean

BY_TAG = tuple(dict.fromkeys((*EDGE_SCHEDULES, *SUMMATIONS)))


class ScheduleAction(argparse.Action):
    """Collects `NAME`, or `TAG=NAME[,TAG=NAME]` from all times that the option is given."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        """Take one more value."""
        if "=" not in values:
            self._check(values, SCHEDULES, "")
            setattr(namespace, self.dest, values)
            return
        before = getattr(namespace, self.dest)
        pins = dict(before) if isinstance(before, dict) else {}
        for pair in filter(None, values.split(",")):
            tag, _, name = pair.rpartition("=")
            if not tag:
                raise argparse.ArgumentError(self, f"'{pair}' is not TAG=NAME, as in EDGE_SE2=jacobians")
            self._check(name, BY_TAG, f" of '{tag}'")
            pins[tag] = name
        setattr(namespace, self.dest, pins)

    def _check(self, name: str, known: tuple[str, ...], whose: str) -> None:
        if name not in known:
            listed = ", ".join(known)
            raise argparse.ArgumentError(
                self,
                f"unknown schedule '{name}'{whose}.{did_you_mean(name, known)} Known: {listed}, "
                "or TAG=NAME for the edges or vertices of a type.",
            )
