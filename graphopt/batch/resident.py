"""Arrays of a batch in memory of a GPU that CUDA shares with the device, which its kernels read and write."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from graphopt.device.cuda_arrays import CudaArray, CudaSide, KeptNumbers
    from graphopt.foreign_arrays import CudaNumbers


@dataclass(frozen=True, eq=False)
class Resident:
    """What stands for an array (...) of all problems: float64 without gaps, on the device."""

    kept: KeptNumbers
    shape: tuple[int, ...]

    @property
    def buffer(self) -> Any:
        """What kernels read."""
        return self.kept.buffer

    @property
    def nbytes(self) -> int:
        """Of all numbers."""
        return 8 * math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Dimensions."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def host(self) -> np.ndarray:
        """A copy on the host."""
        found = np.empty(self.kept.numbers.shape)
        self.kept.fill(found)
        return found.reshape(self.shape)

    def reshape(self, *shape: int) -> Resident:
        """The same numbers, as `np.reshape`; one length may be -1."""
        rest = math.prod(self.shape) // max(-math.prod(shape), 1)
        return Resident(self.kept, tuple(rest if size < 0 else size for size in shape))


def on_host(array: np.ndarray | Resident) -> np.ndarray:
    """The array, or a copy of one on a device."""
    return array.host() if isinstance(array, Resident) else array


@dataclass(frozen=True, eq=False)
class Sharing:
    """A device and what CUDA has of it."""

    device: Any
    side: CudaSide

    @classmethod
    def of(cls, device: Any, ordinal: int) -> Sharing | None:
        """None where the device is not that one of CUDA's."""
        from graphopt.device import cuda_arrays  # who shares nothing does not load it

        side = cuda_arrays.cuda_side(device)
        return None if side is None or side.ordinal != ordinal else cls(device, side)

    def resident(self, numbers: CudaNumbers) -> Resident | None:
        """A copy of an array where kernels read it; None of one with gaps, or of other numbers than float64.

        Memory of `graphopt.empty` is taken as it is, from its begin.
        """
        kept = self.side.keep(self.device, numbers)
        compact = (np.dtype(np.float64).itemsize * math.prod(numbers.shape)) == numbers.span
        if kept is None or kept.offset != 0 or not compact:
            return None
        return Resident(kept, numbers.shape)

    def take(self, nbytes: int) -> Any:
        """Memory for a result: its `buffer` is what kernels write."""
        return self.side.take(self.device, max(nbytes, 16))

    def lend(self, memory: Any, shape: tuple[int, ...]) -> CudaArray:
        """What the programs submitted until now leave there, as an array for CUDA's streams."""
        return self.side.lend(self.device, memory, shape)
