"""Generated kernels by themselves, on Snavely observations in the published sizes.

    python benchmarks/gpu_kernels.py final-961 venice-1778 --arithmetic mixed
    python benchmarks/gpu_kernels.py final-13682 --device 1

Per kernel: milliseconds (the device's timestamps, median of the repeats, after half a second of the same
work, since clocks rise under load), observations per second, operations per second as counted by the
generator. `linearisation` is all that Levenberg-Marquardt needs anew: chi2, H and b; `implicit Schur product`
is both halves of H_pl (H_lp x), without H_ll^-1 and H_pp, with Jacobians computed anew and with stored ones.
Who sees which point is random (vulkan_solver.observations).
Compile time is that of GLSL to a pipeline with empty caches: run with GRAPHOPT_CACHE=off.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import numpy as np
from vulkan_solver import PUBLISHED, observations

from graphopt.codegen.gpu import (
    EDGE_BLOCK,
    TILE,
    EdgeSignature,
    GpuKernel,
    chi2_kernel,
    linearize_kernel,
    narrow_record_dim,
    oplus_kernel,
    pair_kernel,
    record_dim,
)
from graphopt.codegen.gpu.packed_products import packed_record_dim, packed_rows_kernel, packed_tiles_kernel
from graphopt.codegen.gpu.stored_products import (
    StoredProduct,
    store_kernel,
    stored_entries,
    stored_rows_kernel,
    stored_tiles_kernel,
)
from graphopt.device import VulkanDevice
from graphopt.types import registry

CAMERA, POINT = 0, 1
SIGNATURE = EdgeSignature(registry.edge_type("EdgeObservationBAL"), "identity", 0)
DIMS = (9, 3)


def records(table: np.ndarray, stride: int, dtype: type) -> np.ndarray:
    """(n, dim) -> flat records of `stride` numbers."""
    out = np.zeros((len(table), stride), dtype)
    out[:, : table.shape[1]] = table
    return out.ravel()


def blocked(table: np.ndarray, dtype: type) -> np.ndarray:
    """(n, k) -> blocks of EDGE_BLOCK edges, entry by entry."""
    missing = -len(table) % EDGE_BLOCK
    full = np.concatenate([table, np.repeat(table[-1:], missing, axis=0)]).astype(dtype)
    return full.reshape(-1, EDGE_BLOCK, table.shape[1]).transpose(0, 2, 1).ravel()


def tiles_of(first: np.ndarray) -> np.ndarray:
    """First destination of each tile: runs of whole destinations with at most TILE edges, or a single one."""
    tiles = [0]
    while tiles[-1] < len(first) - 1:
        end = int(np.searchsorted(first, first[tiles[-1]] + TILE, "right")) - 1
        tiles.append(max(end, tiles[-1] + 1))
    return np.array(tiles, np.uint32)


class Problem:
    """Observations in both orders, and everything on the device that the kernels read and write."""

    def __init__(self, device: VulkanDevice, name: str, real: type):
        rng = np.random.default_rng(0)
        rows = np.stack(observations(name), axis=1)
        self.num = len(rows)
        pose = 0.1 * rng.normal(size=(rows[:, 0].max() + 1, 5))
        camera = np.concatenate([pose, np.tile([-5.0, 500.0, 1e-3, 1e-5], (len(pose), 1))], axis=1)
        point = rng.uniform(-1.0, 1.0, size=(rows[:, 1].max() + 1, 3))
        offsets = [9 * np.arange(len(camera)), 9 * len(camera) + 3 * np.arange(len(point))]
        dim = 9 * len(camera) + 3 * len(point)
        w_size = 27 * self.num
        host = {
            "y": np.zeros(dim, real),
            "b": np.zeros(dim, real),
            "values": np.zeros(w_size + 81 * len(camera) + 9 * len(point), real),
            "partial": np.zeros(self.num // TILE + len(camera) + len(point) + 1),
            "pair_first": np.arange(self.num + 1, dtype=np.uint32),
            "pair_edge": np.arange(self.num, dtype=np.uint32),
            "pair_block": (27 * np.arange(self.num)).astype(np.uint32),
        }
        for k, table in enumerate((camera, point)):
            host[f"estimate{k}"] = records(table, record_dim(DIMS[k]), np.float64)
            host[f"narrow{k}"] = records(table, narrow_record_dim(DIMS[k]), np.float32)
            both = np.concatenate([table, rng.normal(size=(len(table), DIMS[k]))], axis=1)
            host[f"packed{k}"] = records(both, packed_record_dim(DIMS[k], DIMS[k]), real)
        host["status"] = np.zeros(8, np.uint32)
        self.shared = {key: device.upload(array) for key, array in host.items()}
        self.rows = (len(camera), len(point))
        pixels = rng.normal(size=(self.num, 2))
        self.views, self.num_tiles = [], []
        blocks = -(-self.num // EDGE_BLOCK)
        for slot in (CAMERA, POINT):
            order = np.argsort(rows[:, slot], kind="stable")
            first = np.searchsorted(rows[order, slot], np.arange(self.rows[slot] + 1)).astype(np.uint32)
            tiles = tiles_of(first)
            ranges = np.stack([tiles[:-1], np.diff(tiles), first[tiles[:-1]], first[tiles[1:]]], axis=1)
            count = stored_entries(SIGNATURE, slot, (1 - slot,)).count
            start = w_size + (0 if slot == CAMERA else 81 * len(camera))
            view = {
                "rows": blocked(rows[order], np.uint32),
                "data": blocked(pixels[order], np.float64),
                "data_narrow": blocked(pixels[order], np.float32),
                "first": first,
                "tiles": tiles,
                "tile_ranges": ranges.astype(np.uint32),
                "dest_scalar": offsets[slot].astype(np.uint32),
                "dest_block": (start + DIMS[slot] ** 2 * np.arange(self.rows[slot])).astype(np.uint32),
            }
            self.views.append({key: device.upload(array) for key, array in view.items()})
            nbytes = blocks * EDGE_BLOCK * count * np.dtype(real).itemsize
            self.views[-1]["stored"] = device.allocate(nbytes)
            self.num_tiles.append(len(tiles) - 1)

    def call(self, kernel: GpuKernel, slot: int, groups: int) -> tuple[list, list]:
        """Buffers and parameters of a kernel on the view of a slot."""
        buffers = {**self.shared, **self.views[slot]}
        params = {
            "num_edges": self.num,
            "num_blocks": self.num,
            "num_tiles": self.num_tiles[slot],
            "num_destinations": self.rows[slot],
        }
        return [buffers[name] for name in kernel.buffers], [params.get(name, 0) for name in kernel.params]


def stored(slot: int, arithmetic: str) -> StoredProduct:
    """The product of a slot from stored numbers; x lies behind the estimates."""
    return StoredProduct(SIGNATURE, slot, (1 - slot,), (1 - slot,), (True, True), arithmetic)


def measure(device: VulkanDevice, steps: list, repeats: int) -> float:
    """Median milliseconds of dispatches one after the other."""
    recorder = device.record().timestamp()
    for kernel, (buffers, params), groups in steps:
        recorder.dispatch(kernel, buffers, params, groups).barrier()
    program = recorder.timestamp().finish()
    until, times = time.perf_counter() + 0.5, []
    while time.perf_counter() < until or len(times) < repeats:
        device.submit(program).wait()
        begin, end = program.timestamps()
        times.append((end - begin) * 1e-6)
    return statistics.median(times[-repeats:])


def run(device: VulkanDevice, name: str, arithmetic: str, repeats: int) -> dict:
    """Measure every kernel on one problem and print a table."""
    signature = SIGNATURE
    problem = Problem(device, name, np.float64 if arithmetic == "double" else np.float32)
    tiles = problem.num_tiles
    kernels = {
        "chi2": (chi2_kernel(signature, arithmetic), CAMERA, None),
        "linearize camera": (linearize_kernel(signature, CAMERA, True, arithmetic), CAMERA, tiles[CAMERA]),
        "linearize point": (linearize_kernel(signature, POINT, False, arithmetic), POINT, tiles[POINT]),
        "pair": (pair_kernel(signature, CAMERA, POINT, arithmetic), POINT, None),
        "product point": (
            packed_tiles_kernel(signature, POINT, (CAMERA,), arithmetic),
            POINT,
            tiles[POINT],
        ),
        "product camera": (
            packed_rows_kernel(signature, CAMERA, (POINT,), arithmetic),
            CAMERA,
            problem.rows[CAMERA],
        ),
        "store for point": (store_kernel(signature, POINT, (CAMERA,), arithmetic), POINT, None),
        "store for camera": (store_kernel(signature, CAMERA, (POINT,), arithmetic), CAMERA, None),
        "stored product point": (stored_tiles_kernel(stored(POINT, arithmetic)), POINT, tiles[POINT]),
        "stored product camera": (
            stored_rows_kernel(stored(CAMERA, arithmetic)),
            CAMERA,
            problem.rows[CAMERA],
        ),
    }
    result: dict = {
        "name": name,
        "device": device.name,
        "arithmetic": arithmetic,
        "observations": problem.num,
    }
    steps = {}
    for label, (kernel, slot, groups) in kernels.items():
        start = time.perf_counter()
        compiled = device.generated(kernel)
        seconds = time.perf_counter() - start
        groups = -(-problem.num // kernel.workgroup_size) if groups is None else groups
        steps[label] = (compiled, problem.call(kernel, slot, groups), groups)
        result[label] = {"flops": kernel.flops, "registers": kernel.registers, "compile_s": seconds}
    chains = {label: [label] for label in kernels}
    chains["linearisation"] = ["linearize camera", "linearize point", "pair"]
    chains["implicit Schur product"] = ["product point", "product camera"]
    chains["the same, stored"] = ["stored product point", "stored product camera"]
    print(f"{name}, {arithmetic}, {device.name}")
    for label, members in chains.items():
        entry = result.setdefault(label, {"flops": sum(result[one]["flops"] for one in members)})
        entry["ms"] = measure(device, [steps[one] for one in members], repeats)
        rate = problem.num / entry["ms"] * 1e3
        entry["observations_per_s"] = rate
        print(
            f"  {label:24s} {entry['ms']:9.4f} ms  {rate * 1e-9:8.3f} G observations/s  "
            f"{rate * entry['flops'] * 1e-12:7.3f} T operations/s  built in {entry.get('compile_s', 0):.3f} s"
        )
    start = time.perf_counter()
    device.generated(oplus_kernel(signature.edge_type.vertices[CAMERA], arithmetic))
    print(f"  oplus: {time.perf_counter() - start:.3f} s to compile")
    return result


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="+", choices=list(PUBLISHED), metavar="NAME", help=", ".join(PUBLISHED)
    )
    parser.add_argument("--arithmetic", choices=["double", "mixed", "two_float"], default="mixed")
    parser.add_argument("--device", default=None)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--output", type=Path, default=None, help="the same numbers as JSON")
    arguments = parser.parse_args()
    device = VulkanDevice(arguments.device)
    results = [run(device, name, arguments.arithmetic, arguments.repeats) for name in arguments.names]
    if arguments.output is not None:
        arguments.output.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
