"""The planes of images that programs sample, on the device.

    planes   (largest handle + 1,) uvec4: first pixel, width, height, 0; width 0: no such plane. The last
             number of plane 0 is how many there are
    pixels   float32, one plane after the other, row by row

`symbolic.sampling` says what handles and planes are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from graphopt.codegen import Program, sampled_planes
from graphopt.errors import DeviceError
from graphopt.solver.structure import Structure
from graphopt.solver.vulkan.context import Context
from graphopt.solver.vulkan.transfer import DeviceArray, digest_of
from graphopt.symbolic import sampling

MAX_PIXELS = 1 << 30
"""Of all planes together: kernels may compute byte offsets in 32 bits."""


class DevicePlanes:
    """Some planes in device memory."""

    def __init__(self, context: Context, handles: Iterable[int] = ()):
        self._context = context
        self._digest = b""
        self._table = DeviceArray(context, 16)
        self._pixels = DeviceArray(context, 4)
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
        table = np.zeros((max(planes) + 1, 4), np.uint32)
        first = 0
        for number, pixels in planes.items():
            table[number, :3] = first, pixels.shape[1], pixels.shape[0]
            first += pixels.size
            if first > MAX_PIXELS:
                raise DeviceError(
                    f"The images that are sampled have more than {MAX_PIXELS} pixels together, more than a "
                    "device buffer holds. Use smaller images, or device='cpu'."
                )
        table[0, 3] = len(table)
        moved = self._table.nbytes < table.nbytes or self._pixels.nbytes < 4 * first
        if moved:
            self._table = DeviceArray(self._context, table.nbytes)
            self._pixels = DeviceArray(self._context, 4 * first)
        self._table.write([table])
        self._pixels.write(planes.values())
        self._digest = digest
        return True, moved


def handles_of(structure: Structure, programs: Iterable[Program]) -> set[int]:
    """Planes that edges may sample: of image parameters, and those that programs name."""
    handles = {handle for program in programs for handle in sampled_planes(program)}
    sets = structure.selection.parameter_sets
    for number in {number for group in structure.groups for number in group.parameter_sets}:
        if sets[number].type.image is not None:
            handles.update(int(handle) for handle in np.unique(sets[number].values))
    return handles
