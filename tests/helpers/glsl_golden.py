"""Generated GLSL of four kernels, to see in a diff what a change of the compiler does.

python tests/helpers/glsl_golden.py            # writes tests/golden/glsl anew
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from graphopt.codegen.gpu import EdgeSignature, GpuKernel, chi2_kernel, linearize_kernel, pair_kernel
from graphopt.codegen.gpu.packed_products import recomputed_product
from graphopt.codegen.gpu.product_shapes import tiles_kernel
from graphopt.types import registry

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "glsl"
UPDATE = "Where the change is meant: python tests/helpers/glsl_golden.py"


def golden_kernels() -> Iterator[GpuKernel]:
    """One of each shape: per edge, per destination, per block, a product of the conjugate gradients."""
    planar = EdgeSignature(registry.edge_type("EdgeSE2PointXY"), "full", 0)
    snavely = EdgeSignature(registry.edge_type("EdgeObservationBAL"), "identity", 1)
    yield chi2_kernel(snavely, "mixed")
    yield linearize_kernel(planar, 0, "double")
    yield pair_kernel(planar, 0, 1, "mixed")
    yield tiles_kernel(recomputed_product(snavely, 1, (0,), "mixed"))


def text_path(kernel: GpuKernel) -> Path:
    """Its file."""
    return FOLDER / f"{kernel.name}.{kernel.arithmetic}.glsl"


def main() -> None:
    """Write the folder anew."""
    for path in FOLDER.glob("*"):
        path.unlink()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for kernel in golden_kernels():
        text_path(kernel).write_text(kernel.source)
        sys.stdout.write(f"{text_path(kernel)}\n")


if __name__ == "__main__":
    main()
