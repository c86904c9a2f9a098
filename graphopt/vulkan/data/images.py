"""The planes of images that programs sample, on the device.

    planes   (largest handle + 1,) uvec4: first pixel, width, height, 0; width 0: no such plane. The last
             number of plane 0 is how many there are
    pixels   float32, one plane after the other, row by row

`symbolic.sampling` says what handles and planes are. Interpreted programs and generated kernels read the same
buffers (shaders/include/sampling.glsl).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphopt.codegen import Program, sampled_planes
from graphopt.errors import DeviceLimitError
from graphopt.problem.structure import Structure
from graphopt.solver.cpu import compiled_edge, compiled_vertex
from graphopt.symbolic import sampling
from graphopt.types.base import working_edge_type, working_vertex_type
from graphopt.vulkan.data.array import DeviceArray, digest_of
from graphopt.vulkan.program import Context

MAX_PIXELS = 1 << 30
"""Of all planes together: kernels may compute byte offsets in 32 bits."""


class DevicePlanes:
    """Some planes in device memory."""

    def __init__(self, context: Context, handles: Iterable[int] = ()):
        self._context = context
        self._digest = b""
        self._table = DeviceArray(context, 4, np.uint32)
        self._pixels = DeviceArray(context, 1, np.float32)
        self.update(handles)

    @property
    def buffers(self) -> tuple[Any, Any]:
        """`planes` and `pixels`."""
        return self._table.buffer, self._pixels.buffer

    @property
    def nbytes(self) -> int:
        """Device memory."""
        return self._table.nbytes + self._pixels.nbytes

    def update(self, handles: Iterable[int]) -> tuple[bool, bool]:
        """Take the pixels of these planes: whether anything has changed, and whether buffers are new."""
        found = {number: sampling.plane(number) for number in {0, *handles}}
        planes = {number: pixels for number, pixels in sorted(found.items()) if pixels is not None}
        digest = digest_of(np.array(list(planes)), *planes.values())
        if digest == self._digest:
            return False, False
        table, num_pixels = plane_table(planes)
        moved = self._table.count < table.size or self._pixels.count < num_pixels
        if moved:
            self._table = DeviceArray(self._context, table.size, np.uint32)
            self._pixels = DeviceArray(self._context, num_pixels, np.float32)
        self._table.write(table)
        self._pixels.write(np.concatenate([plane.ravel() for plane in planes.values()] or [table[:0]]))
        self._digest = digest
        return True, moved


def plane_table(planes: dict[int, np.ndarray]) -> tuple[np.ndarray, int]:
    """The table of planes whose pixels follow each other in this order, and how many pixels they have."""
    table = np.zeros((max(planes) + 1, 4), np.uint32)
    first = 0
    for number, pixels in planes.items():
        table[number, :3] = first, pixels.shape[1], pixels.shape[0]
        first += pixels.size
        if first > MAX_PIXELS:
            raise DeviceLimitError(
                f"The images that are sampled have more than {MAX_PIXELS} pixels together, more than a "
                "device buffer holds. Use smaller images, or device='cpu'."
            )
    table[0, 3] = len(table)
    return table, first


def captured_handles(structure: Structure) -> set[int]:
    """Planes that the programs of edges, robust kernels and vertices name: of images they captured."""
    if not sampling.has_planes():
        return set()  # programs name planes of images that are there
    programs: list[Program] = [
        compiled_vertex(working_vertex_type(vertex_set.type))
        for vertex_set in structure.selection.vertex_sets
    ]
    for group in (*structure.groups, *structure.terms):
        compiled = compiled_edge(working_edge_type(group.edge_set.type), group.information, group.kernel)
        programs += [compiled.chi2, compiled.linearize]
        programs += [] if compiled.kernel is None else [compiled.kernel]
    return {handle for program in programs for handle in sampled_planes(program)}


def parameter_handles(structure: Structure) -> set[int]:
    """Planes of the image parameters that edges refer to, as they are now."""
    sets = structure.selection.parameter_sets
    used = {number for group in (*structure.groups, *structure.terms) for number in group.parameter_sets}
    images = [sets[number].values for number in used if sets[number].type.image is not None]
    return {int(handle) for values in images for handle in np.unique(values)}


def num_image_bytes(structure: Structure) -> int:
    """Device memory that the planes of a structure take."""
    handles = captured_handles(structure) | parameter_handles(structure)
    planes = [pixels for handle in handles if (pixels := sampling.plane(handle)) is not None]
    return sum(pixels.nbytes for pixels in planes)
