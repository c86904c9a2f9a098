"""Is `device="auto"` right? Every problem on the CPU, on the device and with auto; what auto's choice costs.

    python benchmarks/choice.py [NAME ...] [--repeats 3]

Timed is a later call with other estimates of the same structure, whole. The regret is the time of the device
that auto takes over the faster one's.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from calls import calls
from device_resident import graph_of

from graphopt import datasets
from graphopt.graph import Graph

PROBLEMS: dict[str, Callable[[], Graph]] = {
    "manhattan-300": lambda: datasets.manhattan(300),
    "manhattan-3500": lambda: datasets.manhattan(3500),
    "manhattan-30000": lambda: datasets.manhattan(30_000, start="truth"),
    "manhattan-200000": lambda: datasets.manhattan(200_000, start="truth"),
    "sphere-2500": lambda: datasets.sphere(50, 50),
    "sphere-10000": lambda: datasets.sphere(100, 100),
    "bundle-5": lambda: datasets.ba(5, 300),
    "bundle-20": lambda: datasets.ba(20, 2000),
    "bundle-60": lambda: datasets.ba(60, 10_000),
    "bundle-150": lambda: datasets.ba(150, 50_000),
    "trafalgar-257": lambda: graph_of("trafalgar-257"),
    "final-961": lambda: graph_of("final-961"),
}


def seconds_on(graph: Graph, device: str, repeats: int) -> tuple[float, str]:
    """Median seconds of later calls, and the device that was taken."""
    found = calls(graph, repeats, max_iterations=15, device=device)
    return float(np.median(found.seconds[1:])), found.summary.device


def main() -> None:
    """Print one line per problem and how often auto was right."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *PROBLEMS], metavar="NAME")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    regrets = []
    for name in arguments.names or PROBLEMS:
        graph = PROBLEMS[name]()
        cpu, device, auto = (
            seconds_on(graph.copy(), place, arguments.repeats) for place in ("cpu", "vulkan", "auto")
        )
        of_choice = cpu[0] if auto[1] == "cpu" else device[0]
        regrets.append(of_choice / min(cpu[0], device[0]))
        print(
            f"{name:18} cpu {1e3 * cpu[0]:9.2f} ms, {device[1]} {1e3 * device[0]:9.2f} ms, auto "
            f"{1e3 * auto[0]:9.2f} ms on {auto[1]}: regret {regrets[-1]:.2f}",
            flush=True,
        )
    right = sum(regret < 1.3 for regret in regrets)
    print(f"regret below 1.3 in {right} of {len(regrets)}, worst {max(regrets):.2f}")


if __name__ == "__main__":
    main()
