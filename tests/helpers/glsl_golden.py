"""The generated GLSL of the built-in types, to see in a diff what a change of the compiler does.

    python tests/helpers/glsl_golden.py            # writes tests/golden/glsl anew

`kernels.txt` has a line per kernel: name, arithmetic, operations, values alive. A few kernels, one of each
sort, are there as text: what changes in them is read in the diff.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from graphopt.codegen.gpu import (
    EdgeSignature,
    GpuKernel,
    chi2_by_vertex_kernel,
    chi2_kernel,
    linearize_kernel,
    oplus_kernel,
    pair_kernel,
)
from graphopt.codegen.gpu.merged_kernels import merged_linearize_kernel, merged_product_kernel
from graphopt.codegen.gpu.moved_products import moved_kernel, transposed_product
from graphopt.codegen.gpu.packed_products import packed_tiles_kernel, recomputed_product
from graphopt.codegen.gpu.scattered import (
    Scattered,
    evaluate_kernel,
    scattered_linearize_kernel,
    scattered_pair_kernel,
)
from graphopt.codegen.gpu.stored_products import StoredProduct, store_kernel, stored_tiles_kernel
from graphopt.types import BUILTIN_TYPES, registry
from graphopt.types.base import (
    EdgeType,
    VariadicEdgeType,
    VertexType,
    working_edge_type,
    working_vertex_type,
)

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "glsl"
UPDATE = "Where the change is meant: python tests/helpers/glsl_golden.py"


def edge_kernels(kind, arithmetic: str) -> Iterator[GpuKernel]:
    """Kernels of a type with diagonal information and Huber's kernel."""
    kind = working_edge_type(kind.instantiate(3) if isinstance(kind, VariadicEdgeType) else kind)
    signature = EdgeSignature(kind, "diagonal", 1)
    last = signature.arity - 1
    yield chi2_kernel(signature, arithmetic)
    yield chi2_by_vertex_kernel(signature, last, arithmetic)
    yield linearize_kernel(signature, last, arithmetic)
    yield packed_tiles_kernel(signature, 0, tuple(range(signature.arity)), arithmetic)
    if last:
        yield store_kernel(signature, 0, tuple(range(1, signature.arity)), arithmetic)
    if last:
        yield pair_kernel(signature, 0, last, arithmetic)
        scattered = Scattered(signature, tuple(range(signature.arity)), ((0, last),))
        yield evaluate_kernel(scattered, arithmetic)
        yield scattered_linearize_kernel(scattered, last, arithmetic)
        yield scattered_pair_kernel(scattered, 0, last, arithmetic)
    kinds = [vertex.name for vertex in kind.vertices]
    if signature.arity == 2 and kinds[0] == kinds[1]:
        yield from merged_kernels([(signature, 0), (signature, 1)], arithmetic)


def merged_kernels(members, arithmetic: str) -> Iterator[GpuKernel]:
    """Sums over several views."""
    yield merged_linearize_kernel(tuple(members), arithmetic)
    products = [recomputed_product(signature, slot, (1 - slot,), arithmetic) for signature, slot in members]
    yield merged_product_kernel(tuple(products))


def kernels_of(kind) -> Iterator[GpuKernel]:
    """Kernels of an edge type or vertex type in both arithmetics."""
    for arithmetic in ("double", "mixed"):
        if isinstance(kind, VertexType):
            yield oplus_kernel(working_vertex_type(kind), arithmetic)
        else:
            yield from edge_kernels(kind, arithmetic)


def line_of(kernel: GpuKernel) -> str:
    """The kernel's line in kernels.txt."""
    return f"{kernel.name} {kernel.arithmetic} {kernel.flops} {kernel.registers}"


def whole_texts() -> Iterator[GpuKernel]:
    """Kernels that are kept as text."""
    planar = EdgeSignature(registry.edge_type("EdgeSE2PointXY"), "full", 0)
    snavely = EdgeSignature(registry.edge_type("EdgeObservationBAL"), "identity", 1)
    yield chi2_kernel(snavely, "mixed")
    yield linearize_kernel(planar, 0, "double")
    yield pair_kernel(planar, 0, 1, "mixed")
    yield packed_tiles_kernel(snavely, 1, (0,), "mixed")
    yield store_kernel(snavely, 1, (0,), "mixed")
    yield stored_tiles_kernel(StoredProduct(snavely, 1, (0,), (0,), (False, False), "mixed"))
    yield moved_kernel(planar, (0, 1), "mixed")
    yield stored_tiles_kernel(transposed_product(planar, 1, (0, 1), False, "mixed"))
    odometry = EdgeSignature(registry.edge_type("EdgeSE2"), "diagonal", 0)
    yield from merged_kernels([(odometry, 0), (odometry, 1), (planar, 0)], "mixed")
    yield oplus_kernel(registry.vertex_type("VertexSE2"), "mixed")
    scattered = Scattered(planar, (0, 1), ((0, 1),))
    yield evaluate_kernel(scattered, "mixed")
    yield scattered_linearize_kernel(scattered, 0, "mixed", parts=True)


def text_path(kernel: GpuKernel) -> Path:
    """File of a kernel that is kept as text."""
    return FOLDER / f"{kernel.name}.{kernel.arithmetic}.glsl"


def golden_types() -> list:
    """Types with a line in kernels.txt."""
    return [
        builtin_type
        for builtin_type in BUILTIN_TYPES
        if isinstance(builtin_type, (VertexType, EdgeType, VariadicEdgeType))
    ]


def main() -> None:
    """Write the folder anew."""
    for path in FOLDER.glob("*.glsl"):
        path.unlink()
    lines = [line_of(kernel) for kind in golden_types() for kernel in kernels_of(kind)]
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "kernels.txt").write_text("\n".join(lines) + "\n")
    for kernel in whole_texts():
        text_path(kernel).write_text(kernel.source)
    sys.stdout.write(f"{len(lines)} lines in {FOLDER / 'kernels.txt'}\n")


if __name__ == "__main__":
    main()
