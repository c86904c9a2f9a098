#!/usr/bin/env python3
"""Feed mutated files to every reader: the outcome must be a graph or a FormatError, in little time.

    tools/fuzz_readers.py --count 100000 [--seed 1] [--only g2o] [--keep FOLDER]

The seeds are small files of our own, one or more per format. An input is one to eight mutations of a seed:
bytes, slices, lines and tokens are changed, removed, repeated, exchanged with other seeds', numbers become
huge, negative, nan. What reads is written and read again. Exit status 1 if anything else than a graph or a
FormatError came out, or an input took longer than the limit; the inputs that did are kept.
"""

from __future__ import annotations

import argparse
import gzip
import io
import lzma
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from graphopt.colmap import binary, text
from graphopt.colmap import folders as colmap_files
from graphopt.colmap.graph import graph_of, model_of
from graphopt.colmap.model import (
    ColmapCamera,
    ColmapFrames,
    ColmapImages,
    ColmapModel,
    ColmapPoints,
    ColmapRig,
    ColmapSensor,
)
from graphopt.errors import FormatError
from graphopt.graph import Graph
from graphopt.io import bal_problem, extra_types
from graphopt.io.detect import detect
from graphopt.io.files import bytes_of, unpack
from graphopt.io.formats import FORMATS, content_of, read_content
from graphopt.io.read_report import ReadReport
from graphopt.types import BUILTIN_TYPES, VariadicEdgeType, registry

SECONDS_PER_INPUT = 5
MEMORY_LIMIT = 4 << 30
TOKENS = [
    *(
        b"nan",
        b"-inf",
        b"1e400",
        b"1e-400",
        b"0x1F",
        b"1D+05",
        b"57295,8",
        b"1,2,3",
        b"+1",
        b"-0",
        b".",
        b"-",
        b"e5",
    ),
    *(
        b"9223372036854775807",
        b"9223372036854775808",
        b"-9223372036854775808",
        b"1000000000000",
        b"4294967296",
        b"-1",
        b"0",
    ),
    *(
        b"||",
        b"#",
        b"FIX",
        b"EQUIV",
        b"VERTEX_SE2",
        b"EDGE_SE2",
        b"PARAMS_SE3OFFSET",
        b"\x00",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
    ),
    *(
        b"1" * 400,
        b"0." + b"9" * 1000,
        b"1e99999999999999999999",
        b"1.7976931348623157e308",
        b"4.9e-324",
        b"1.#INF",
    ),
]


def tagged_seed(rng: np.random.Generator) -> bytes:
    """Make a .g2o text with a line or two of every built-in type."""
    lines, next_id = [], 0
    parameter_ids = {
        kind: number for number, kind in enumerate(registry.parameter_types()) if kind in BUILTIN_TYPES
    }
    for parameter_type, number in parameter_ids.items():
        lines.append(
            line(parameter_type.tag, [number], rng.uniform(0.3, 1.5, parameter_type.file.num_tokens))
        )
    for kind in registry.edge_types():
        if kind not in BUILTIN_TYPES:
            continue
        edge_type = kind.instantiate(3) if isinstance(kind, VariadicEdgeType) else kind
        ids = []
        for vertex_type in edge_type.vertices:
            lines.append(line(vertex_type.tag, [next_id], rng.uniform(0.3, 1.5, vertex_type.file.num_tokens)))
            ids.append(next_id)
            next_id += 1
        measurement, _ = edge_type.file.decode(rng.uniform(0.3, 1.5, (1, edge_type.file.num_tokens)))
        tokens = edge_type.file.encode(measurement, np.eye(edge_type.residual_dim)[None])[0]
        count = [len(ids)] if isinstance(kind, VariadicEdgeType) else []
        lines.append(
            line(
                kind.tag,
                [*count, *ids, *(parameter_ids[parameter] for parameter in edge_type.parameters)],
                tokens,
            )
        )
    return "\n".join([*lines, "ROBOTLASER1 0 1 2 3", "# comment", "FIX 0 1", ""]).encode()


def line(tag: str, ids: list[int], numbers: np.ndarray) -> str:
    """One line of a tagged text."""
    return " ".join([tag, *map(str, ids), *(f"{x:g}" for x in numbers)])


def bal_seed(rng: np.random.Generator, num_cameras: int = 3, num_points: int = 6) -> bal_problem.BalProblem:
    """Make a small problem in which every camera sees every point."""
    camera, point = np.divmod(np.arange(num_cameras * num_points), num_points)
    cameras = rng.uniform(-0.1, 0.1, (num_cameras, 9))
    cameras[:, 6] = 500.0
    return bal_problem.BalProblem(
        camera,
        point,
        rng.normal(0, 50, (len(camera), 2)),
        cameras,
        rng.normal(0, 1, (num_points, 3)) - [0, 0, 9],
    )


def colmap_seed(rng: np.random.Generator) -> ColmapModel:
    """Three images of two cameras on one rig, five points that all see."""
    images, points = 3, 5
    keypoints = points + 2
    ids = np.array([10, 11, 12, 13, 14])
    point_ids = np.tile(np.concatenate([ids, [-1, -1]]), images)
    track = [(image + 1, k) for k in range(points) for image in range(images)]
    return ColmapModel(
        [
            ColmapCamera(1, "SIMPLE_RADIAL", 640, 480, np.array([500.0, 320, 240, 0.01])),
            ColmapCamera(7, "OPENCV_FISHEYE", 640, 480, np.array([500.0, 501, 320, 240, 0.01, 0, 0, 0])),
        ],
        ColmapImages(
            np.arange(1, images + 1),
            np.tile([1.0, 0.01, 0.02, 0.03], (images, 1)),
            rng.normal(size=(images, 3)),
            np.array([1, 7, 1]),
            ["a.jpg", "folder/b c.jpg", "ü.png"],
            np.arange(images + 1) * keypoints,
            rng.uniform(0, 640, (images * keypoints, 2)),
            point_ids,
        ),
        ColmapPoints(
            ids,
            rng.normal(size=(points, 3)) + np.array([0, 0, 9]),
            rng.integers(0, 256, (points, 3)).astype(np.uint8),
            np.full(points, 0.5),
            np.arange(points + 1) * images,
            np.array(track),
        ),
        rigs=[
            ColmapRig(2, [ColmapSensor(0, 1, None), ColmapSensor(0, 7, np.array([1, 0.1, 0, 0, 0.2, 0, 0]))])
        ],
        frames=ColmapFrames(
            np.array([5, 6]),
            np.array([2, 2]),
            np.array([[1.0, 0.01, 0.02, 0.03, 0.1, 0.2, 0.3], [1.0, 0, 0.02, 0.03, 0.4, 0.5, 0.6]]),
            [np.array([[0, 1, 1], [0, 7, 2]]), np.array([[0, 1, 3]])],
        ),
    )


def bal_archive(problem: bal_problem.BalProblem) -> bytes:
    """What numpy writes of a problem's arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value for name, value in vars(problem).items() if value is not None})
    return buffer.getvalue()


def libmv_seed(rng: np.random.Generator) -> bytes:
    """Two images, three tracks."""
    rotation = np.eye(3, dtype="<f4").tobytes()
    parts = [b"vP", np.array([500, 320, 240, 0.01, 0, 0, 0, 0], "<f4").tobytes(), np.int32(2).tobytes()]
    parts += [np.int32(i).tobytes() + rotation + rng.normal(size=3).astype("<f4").tobytes() for i in range(2)]
    parts.append(np.int32(3).tobytes())
    parts += [np.int32(i).tobytes() + np.array([i, 1, 9], "<f4").tobytes() for i in range(3)]
    parts.append(np.int32(6).tobytes())
    parts += [
        np.array([i % 2, i // 2], "<i4").tobytes() + np.array([300, 200], "<f4").tobytes() for i in range(6)
    ]
    return b"".join(parts)


def make_seeds() -> list[tuple[str, str, bytes]]:
    """List (format, name, content): "auto" is detected, "colmap:<file>" is one part of a model."""
    rng = np.random.default_rng(5)
    bal = bal_seed(rng)
    fixed = bal_problem.BalProblem(
        bal.camera_index,
        bal.point_index,
        bal.observations,
        bal.cameras[:, :6],
        bal.points,
        np.array([500.0, 500, 320, 240]),
    )
    toro = (
        b"VERTEX2 0 0 0 0\nVERTEX2 1 1 0 0\nEDGE2 0 1 1 0 0 1 0 1 1 0 0\nEQUIV 0 1\nBR 0 5 0.1 2 0.03 0.1\n"
    )
    toro += (
        b"VERTEX3 2 0 0 0 0 0 0\nVERTEX3 3 1 0 0 0 0 0.1\n"
        + line("EDGE3", [2, 3], np.ones(27)).encode()
        + b"\n"
    )
    isam = b"ODOMETRY 0 1 1 0 0 10 0 0 10 0 10\nLANDMARK 0 2 1 1 3 0 3\nEDGE3 5 6 1 2 3 0.1 0.2 0.3\n"
    isam3 = line("EDGE3", [0, 1], np.ones(27)) + "\nPOINT3 0 1 1 2 3 1 0 0 1 0 1\n"
    bundler = (
        b"# Bundle file v0.3\n2 1\n500 0 0\n1 0 0\n0 1 0\n0 0 1\n0 0 0\n0 0 0\n0 0 0\n0 0 0\n0 0 0\n0 0 0\n"
    )
    bundler += b"0 0 -9\n255 0 7\n1 0 17 3.5 -2.5\n"
    tum = b"# t x y z qx qy qz qw\n" + b"\n".join(b"%d.5 1 2 3 0 0 0 1" % k for k in range(5)) + b"\n"
    kitti = b"1 0 0 1 0 1 0 2 0 0 1 3\n" * 4
    g2o = tagged_seed(rng)
    small = b"VERTEX_SE2 0 0 0 0\nVERTEX_SE2 1 1 0 0\nEDGE_SE2 0 1 1 0 0 1 0 0 1 0 1\nFIX 0\n"
    old = b"VERTEX_SE2 0 1 2 0.3\nVERTEX_XY 1 1 2\nEDGE_SE2_LOTSOFXY 0 1 || 1 1 2 1 0 1\n"
    extra = line(extra_types.EdgeBearingRange.tag, [0, 1], np.array([0.1, 2, 1, 0, 1])).encode() + b"\n"
    model = colmap_seed(rng)
    seeds = [
        *(("g2o", "all.g2o", g2o), ("g2o", "small.g2o", small), ("g2o", "old.g2o", old + extra)),
        *(("toro", "a.graph", toro), ("isam", "a.isam", isam), ("isam", "b.isam", isam3.encode())),
        *(
            ("bal", "a.bal", bal_problem.format_bal(bal)),
            ("bal_fixed_k", "b.txt", bal_problem.format_bal(fixed)),
        ),
        *(("bal_npz", "a.npz", bal_archive(bal)), ("bundler", "bundle.out", bundler)),
        *(("libmv", "a.bin", libmv_seed(rng)), ("tum", "a.tum", tum), ("kitti", "a.kitti", kitti)),
        *(("auto", "any.txt", small + tum + kitti), ("auto", "a.g2o.gz", gzip.compress(small, mtime=0))),
        ("auto", "a.bal.xz", lzma.compress(bal_problem.format_bal(bal))),
    ]
    for form, suffix in ((text, "txt"), (binary, "bin")):
        seeds += [
            (f"colmap:cameras.{suffix}", f"cameras.{suffix}", form.format_cameras(model.cameras)),
            (f"colmap:images.{suffix}", f"images.{suffix}", form.format_images(model.images)),
            (f"colmap:points3D.{suffix}", f"points3D.{suffix}", form.format_points(model.points)),
            (f"colmap:rigs.{suffix}", f"rigs.{suffix}", form.format_rigs(model.rigs)),
            (f"colmap:frames.{suffix}", f"frames.{suffix}", form.format_frames(model.frames)),
        ]
    return seeds


def mutate(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """One to eight random changes."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5, 8))):
        rng.choice(MUTATIONS)(out, rng, others)
    return bytes(out)


def mutate_any(form: str, data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """`mutate`, whatever the format."""
    return mutate(data, rng, others)


def _slice(out: bytearray, rng: random.Random) -> slice:
    begin = rng.randrange(len(out) + 1)
    return slice(begin, begin + rng.choice((1, 1, 2, 4, 8, 30, 200)))


def change_byte(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Set a byte to a random one."""
    if out:
        out[rng.randrange(len(out))] = rng.randrange(256)


def flip_bit(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Flip a bit."""
    if out:
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)


def remove_slice(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Remove some bytes."""
    del out[_slice(out, rng)]


def repeat_slice(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Repeat some bytes up to 50 times."""
    where = _slice(out, rng)
    out[where.stop : where.stop] = out[where] * rng.choice((1, 2, 5, 50))


def cut_off(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Truncate."""
    del out[rng.randrange(len(out) + 1) :]


def insert_token(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Insert a word that readers may stumble over."""
    at = rng.randrange(len(out) + 1)
    out[at:at] = b" " + rng.choice(TOKENS) + b" "


def replace_token(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Replace a token by such a word."""
    tokens = bytes(out).split(b" ")
    tokens[rng.randrange(len(tokens))] = rng.choice(TOKENS)
    out[:] = b" ".join(tokens)


def exchange_lines(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Exchange two lines."""
    lines = bytes(out).split(b"\n")
    i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[i], lines[j] = lines[j], lines[i]
    out[:] = b"\n".join(lines)


def repeat_line(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Repeat or remove a line."""
    lines = bytes(out).split(b"\n")
    i = rng.randrange(len(lines))
    lines[i : i + 1] = [lines[i]] * rng.choice((0, 2, 3))
    out[:] = b"\n".join(lines)


def splice(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Put a piece of another seed in."""
    other = rng.choice(others)
    begin = rng.randrange(len(other) + 1)
    at = rng.randrange(len(out) + 1)
    out[at:at] = other[begin : begin + rng.choice((4, 40, 400))]


def set_integer(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Write a binary integer of 4 or 8 bytes, such as a count."""
    value = rng.choice((0, 1, 255, 2**31 - 1, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1, 10**12))
    size = 4 if value < 2**32 and rng.random() < 0.5 else 8
    at = rng.randrange(len(out) + 1)
    out[at : at + size] = value.to_bytes(8, "little")[:size]


def to_crlf(out: bytearray, rng: random.Random, others: list[bytes]) -> None:
    """Other line ends."""
    out[:] = bytes(out).replace(b"\n", rng.choice((b"\r\n", b"\r", b"\n\n", b" \n")))


Mutation = Callable[[bytearray, random.Random, list[bytes]], None]
MUTATIONS: list[Mutation] = [
    *(change_byte, flip_bit, remove_slice, repeat_slice, cut_off, insert_token, replace_token, replace_token),
    *(exchange_lines, repeat_line, splice, set_integer, to_crlf),
]


def read_once(form: str, name: str, data: bytes, parts: dict[str, bytes]) -> str:
    """Read one input; if it reads, write it and read that again. Returns what happened."""
    try:
        if form.startswith("colmap:"):
            return _read_colmap(name, data, parts)
        content = unpack(data, name)
        chosen = FORMATS[detect(content, name) if form == "auto" else form]
        graph = read_content(chosen, content, ReadReport(name, chosen.name))
    except FormatError:
        return "refused"
    if chosen.write is None:
        return "read"
    try:
        written = bytes_of(content_of(graph, chosen)[0])
    except FormatError:
        return "read, cannot be written"
    again = read_content(chosen, written, ReadReport(name, chosen.name))
    _expect_same_size(graph, again, chosen.name)
    return "read, written, read"


def _read_colmap(name: str, data: bytes, parts: dict[str, bytes]) -> str:
    suffix = name.rsplit(".", 1)[1]
    contents = {
        Path(f"{part}.{suffix}"): data if f"{part}.{suffix}" == name else parts[f"{part}.{suffix}"]
        for part in ("cameras", "images", "points3D", "rigs", "frames")
    }
    model = colmap_files.parse_colmap(contents, "model")
    graph = graph_of(model, "model", ReadReport("model", "colmap"))
    try:
        again, _ = model_of(graph)
    except FormatError:
        return "read, cannot be written"
    form = binary if suffix == "bin" else text
    assert again.frames is not None
    rewritten = [
        form.format_cameras(again.cameras),
        form.format_images(again.images),
        form.format_points(again.points),
        form.format_rigs(again.rigs),
        form.format_frames(again.frames),
    ]
    colmap_files.parse_colmap(dict(zip(contents, rewritten, strict=True)), "model")
    return "read, written, read"


def _expect_same_size(graph: Graph, again: Graph, name: str) -> None:
    if graph.num_edges != again.num_edges:
        raise AssertionError(f"{name}: {graph.num_edges} edges were written, {again.num_edges} read")
    if name in ("g2o", "bal") and graph.num_vertices != again.num_vertices:
        raise AssertionError(f"{name}: {graph.num_vertices} vertices were written, {again.num_vertices} read")


class Slow(Exception):
    """An input took more than SECONDS_PER_INPUT of the processor."""


def _too_slow(*_: object) -> None:
    raise Slow


def campaign(
    count: int,
    seed: int,
    only: str | None = None,
    keep: Path | None = None,
    seeds: list[tuple[str, str, bytes]] | None = None,
    read: Callable[[str, str, bytes, dict[str, bytes]], str] = read_once,
    change: Callable[[str, bytes, random.Random, list[bytes]], bytes] = mutate_any,
) -> tuple[Counter[str], list[str]]:
    """Run `count` inputs. Returns how often each outcome came and a text for each failure.

    seeds, read, change: of other formats, as `fuzz_maps.py` has them.
    """
    rng = random.Random(seed)
    given = seeds or make_seeds()
    seeds = [each_seed for each_seed in given if only is None or each_seed[0].startswith(only)]
    others = [data for _, _, data in given]
    parts = {form.removeprefix("colmap:"): data for form, _, data in given if form.startswith("colmap:")}
    outcomes: Counter[str] = Counter()
    failures: list[str] = []
    previous = signal.signal(signal.SIGPROF, _too_slow)
    try:
        for k in range(count):
            form, name, data = seeds[k % len(seeds)]
            mutated = change(form, data, rng, others)
            try:
                signal.setitimer(signal.ITIMER_PROF, SECONDS_PER_INPUT)
                try:
                    outcome = read(form, name, mutated, parts)
                finally:
                    signal.setitimer(signal.ITIMER_PROF, 0)
            except Exception as error:
                outcome = f"FAILED {type(error).__name__}"
                failures.append(f"input {k} ({form}): {traceback.format_exc(limit=-4)}")
                if keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{k}-{Path(name).name}").write_bytes(mutated)
            outcomes[outcome] += 1
            if len(failures) >= 20:
                break
    finally:
        signal.signal(signal.SIGPROF, previous)
    return outcomes, failures


def main(
    description: str | None = __doc__,
    run: Callable[[int, int, str | None, Path | None], tuple[Counter[str], list[str]]] = campaign,
    count: int = 10_000,
) -> int:
    """Run a campaign (count, seed, only, keep) and print what came out."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=count, help="inputs in all")
    parser.add_argument("--seed", type=int, default=1, help="of the random numbers")
    parser.add_argument("--only", help="formats that start with this")
    parser.add_argument("--keep", type=Path, help="folder for inputs that failed")
    args = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    warnings.simplefilter("error")
    start = time.perf_counter()
    outcomes, failures = run(args.count, args.seed, args.only, args.keep)
    for outcome, times in outcomes.most_common():
        print(f"{times:8d}  {outcome}")
    print(f"{sum(outcomes.values())} inputs in {time.perf_counter() - start:.1f} s, {len(failures)} failures")
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
