"""Rows of tables, measured: one process per solver and run, solvers in turn."""

from __future__ import annotations

import importlib.util
import os
import statistics
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from graphopt.errors import OptionError
from graphopt.evaluate import machine
from graphopt.evaluate.runner import Unit, in_a_process
from graphopt.linear.memory import available_bytes
from graphopt.reproduce.compare import SAME_RUN
from graphopt.reproduce.graphs import num_edges, with_file

FUNCTIONS = {
    "calls": "graphopt.reproduce.calls:measure",
    "bundles": "graphopt.reproduce.bundles:measure",
    "pose_graphs": "graphopt.reproduce.pose_graphs:measure",
    "drop_in": "graphopt.reproduce.drop_in:measure",
    "ranks": "graphopt.reproduce.ranks:measure",
    "windows": "slam_bridge.evaluation.windows:measure",
}
"""What measures the rows of a table, by the table's `function`."""
_BUSY = 0.5  # load per core
_BYTES_PER_EDGE = 600  # of the host for a graph, its copy and a structure, at least


@dataclass
class Machine:
    """What there is here, and which device the user wants for rows of a GPU."""

    device: str | None = None
    """Instead of the stated one; None: the stated one, the CPU where there is no GPU."""
    limit: float | None = None
    """Seconds of a row's run at most."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    """Rows and solvers that were left out, with the reason."""

    @cached_property
    def gpus(self) -> list[str]:
        """Names of the GPUs."""
        return [each["name"] for each in machine.accelerators()[0] if each["kind"] != "cpu"]

    @cached_property
    def words(self) -> str:
        """Processor, GPUs and versions, in one line."""
        cpu = machine.describe_cpu()
        parts = [*self.gpus, f"{cpu['name']}, {cpu['detail']}", f"Python {machine.platform.python_version()}"]
        return "; ".join(parts)

    @cached_property
    def load(self) -> str:
        """That other work keeps this machine busy, if it does: times say little then."""
        cores = machine.describe_cpu()["cores"]
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
        return f"this machine is busy (load {load:.1f} on {cores} cores)" if load > _BUSY * cores else ""

    def device_of(self, stated: str) -> str:
        """What a row runs on."""
        if stated == "cpu":
            return "cpu"
        return self.device or (stated if self.gpus else "cpu")

    def measure(self, table: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
        """The entry of a row: seconds, chi2, peers; or "error", or "skipped" with the reason."""
        stated = row.get("device", table["device"])
        device = self.device_of(stated)
        options = {"turns": 1, **row.get("run", {})}
        turns = options.pop("turns")
        reason = self._obstacle(row, options, device)
        if reason is None and "graph" in options:
            try:
                options["graph"] = with_file(options["graph"])
            except (OSError, OptionError) as error:
                reason = str(error)
        if reason is not None:
            return {"skipped": reason}
        function, is_stated = FUNCTIONS[table["function"]], (stated == "cpu") == (device == "cpu")
        if table["function"] == "calls" and not is_stated:
            options["kinds"] = []  # chi2 of one call is all that can be compared
        solvers = {"graphopt": {}} | self._peers(row)
        runs: dict[str, list[dict[str, Any]]] = {solver: [] for solver in solvers}
        for _ in range(turns):
            for solver, more in solvers.items():
                unit = Unit(f"{row['name']} {solver}", function, {**options, "device": device, **more})
                runs[solver].append(in_a_process(unit, self.limit))
        entry = _combined(runs.pop("graphopt"))
        entry["peers"] = [self._peer_entry(row, solver, entries) for solver, entries in runs.items()]
        entry["is_stated_device"] = is_stated
        return entry

    def _obstacle(self, row: dict[str, Any], options: dict[str, Any], device: str) -> str | None:
        """Why a row is not run, if it is not."""
        if not options:
            return "the results do not say what is run"
        ranks = options.get("ranks", 1)
        if ranks > 1 and self.device is None and len(self.gpus) < ranks:
            here = ", ".join(self.gpus) or "none"
            return f"{ranks} GPUs are needed, here: {here}. --device names others, such as cpu."
        room = available_bytes()
        need = _BYTES_PER_EDGE * num_edges(row.get("edges"), options.get("graph", {}))
        if room is not None and need > room:
            return (
                f"it needs more than {need / 2**30:.0f} GiB of memory, {room / 2**30:.0f} GiB are available."
            )
        return None

    def _peers(self, row: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Other solvers that run beside ours, by name, with their options; those not installed are noted."""
        found = {}
        for peer in row["peers"]:
            if "run" not in peer:
                continue
            if importlib.util.find_spec(peer["module"]) is None:
                missing = f"{peer['solver']} is not installed: pip install '{peer['install']}'"
                self.notes.append((row["name"], missing))
            else:
                found[peer["solver"]] = peer["run"]
        return found

    def _peer_entry(self, row: dict[str, Any], solver: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
        entry = _combined(runs)
        if "error" in entry:
            self.notes.append((row["name"], f"{solver}: {entry['error']}"))
            return {"solver": solver, "seconds": None, "chi2": None, "source": SAME_RUN}
        seconds = next(iter(entry["seconds"].values()))
        return {"solver": solver, "seconds": seconds, "chi2": entry["chi2"], "source": SAME_RUN}


def _combined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians of several runs; the first error of any."""
    for run in runs:
        if "error" in run:
            return {"error": run["error"]}
    entry = {key: value for key, value in runs[-1].items() if key not in ("files", "wall_seconds")}
    calls = entry["seconds"]
    entry["seconds"] = {call: statistics.median(run["seconds"][call] for run in runs) for call in calls}
    return entry
