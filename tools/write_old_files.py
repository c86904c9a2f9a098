"""Files of this release for the archive that later ones are tested with: python tools/write_old_files.py.

Writes `tests/io/old/VERSION/`: a tiny file of every format that is written, and what they give in
`expected.json`.
Run once per release, before it; a folder that is there is never changed (`tests/io/test_old_files.py`).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "helpers")]
ARCHIVE = ROOT / "tests" / "io" / "old"

import old_files  # noqa: E402

import graphopt  # noqa: E402
from graphopt.distributed.checkpoint import write_checkpoint  # noqa: E402
from graphopt.evaluate.results import Results  # noqa: E402
from slam_bridge.exchange.convert import write_map_file  # noqa: E402
from slam_bridge.generator.problem import generate_problem  # noqa: E402
from slam_bridge.vib import write_vib  # noqa: E402


def graphs() -> dict[str, graphopt.Graph]:
    """Three tiny problems: poses of the plane, poses of space, cameras and points."""
    data = graphopt.datasets
    flat = data.manhattan(8, seed=1)
    flat.edge_sets[0].kernel[:] = 1
    flat.vertex_sets[0].fixed[0] = True
    space = data.sphere(5, 2, seed=1)
    images = data.ba(3, 8, seed=1)
    return {"flat": flat, "space": space, "images": images}


def write_graphs(folder: Path) -> None:
    """Every format of graphs, each dialect."""
    made = graphs()
    for name, graph in made.items():
        for suffix in (".npz", ".g2o", ".g2o.gz", ".g2o.xz", ".g2o.bz2", ".json"):
            if name == "flat" or suffix in (".npz", ".g2o"):
                graphopt.write(graph, folder / f"{name}{suffix}")
    graphopt.write(made["space"], folder / "space-g2opy.g2o", dialect="g2opy")
    graphopt.write(made["space"], folder / "space.bin", format="g2o_cbor")
    for suffix in (".toro", ".isam"):
        for name in ("flat", "space"):
            graphopt.write(made[name], folder / f"{name}{suffix}")
    graphopt.write(made["flat"], folder / "flat-covariance.isam", dialect="isam-covariance")
    for suffix in (".tum", ".kitti"):
        graphopt.write(made["space"], folder / f"space{suffix}")
    for suffix in (".bal", ".out"):
        graphopt.write(made["images"], folder / f"images{suffix}")
    write_checkpoint(str(folder / "flat.checkpoint"), made["flat"], 3, 1.5)
    Results("bal", {"device": "cpu"}, entries={"a": {"seconds": 1.5}}).save(folder / "evaluation")


def write_maps(folder: Path) -> None:
    """Every format of maps."""
    problem = generate_problem("MH01", seconds=2.0, keyframes=5, landmarks=20, observations=60, seed=3)
    write_vib(problem, folder / "map.vib")
    for name in ("map.json", "map.yaml", "map.g2o", "colmap"):
        write_map_file(problem, folder / name)


def write_cache(folder: Path) -> None:
    """The cache that an edge type of a user's own leaves."""
    os.environ["GRAPHOPT_CACHE_DIR"] = str(folder / "cache")
    old_files.optimize_own_type()


def main() -> None:
    """Write all, then what reading gives."""
    folder = ARCHIVE / graphopt.__version__
    with tempfile.TemporaryDirectory(dir=ROOT / "tests" / "io") as made:
        work = Path(made) / "files"
        work.mkdir()
        write_graphs(work)
        write_maps(work)
        write_cache(work)
        expected = {name: old_files.contents(work, name) for name in old_files.names(work)}
        (work / "expected.json").write_text(json.dumps(expected, indent=1) + "\n", encoding="utf-8")
        ARCHIVE.mkdir(exist_ok=True)
        work.rename(folder)  # OSError where it is there and not empty
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {len(expected)} files, {size} bytes")


if __name__ == "__main__":
    main()
