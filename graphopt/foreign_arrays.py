"""Arrays of other libraries: taken as they are where memory allows, copied from a GPU, refused by name.

    host()      anything with `__dlpack__` or `__cuda_array_interface__` as a numpy array
    on_cuda()   where the numbers of an array of a CUDA device are
    kept()      such numbers where a solver reads them, instead of on the host
    empty()     memory that a graph can take without a copy
    adopted()   an array as such memory

Strides and offsets are kept. Memory of a CUDA device is copied in the order of its stream, by the driver
(`cuda_driver`). Layout of dlpack's structures: dlpack.h 0.8.
"""

from __future__ import annotations

import ctypes
import importlib
import weakref
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from graphopt.cuda_driver import LEGACY_STREAM, Cuda
from graphopt.errors import DeviceError, ShapeError

_ON_HOST = (1, 3, 11, 13)  # kDLCPU, kDLCUDAHost, kDLROCMHost, kDLCUDAManaged
CUDA = 2  # kDLCUDA
_OTHERS = {4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 14: "oneAPI", 15: "WebGPU"}
_KINDS = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}  # of DLDataType.code
_KEEPER = "graphopt.vulkan.data.foreign:keep_rows"
"""What keeps numbers on their device, imported when the first are there."""
LEAST_KEPT = 1 << 20
"""Bytes of numbers that stay on their device; a copy of fewer on the host costs less than looking at them."""

Memory = TypeVar("Memory", bound=np.ndarray)


class SharedArray(np.ndarray):
    """What `empty` returns."""


_shared: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()
"""By address: what `empty` and `fresh` return."""


def empty(shape: int | tuple[int, ...], dtype: Any = np.float64) -> SharedArray:
    """Memory of the host that a graph keeps instead of a copy of it, see `device.cuda_arrays.empty`."""
    return _registered(SharedArray(shape, dtype))  # owns its memory: views of it keep it


def fresh(shape: int | tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Memory of the host that only the caller has until a graph keeps it."""
    return _registered(np.empty(shape, dtype))


def adopted(array: np.ndarray) -> SharedArray:
    """A view of an array (a file's pages, one row that stands for all) that a graph takes as `empty`'s."""
    return _registered(array.view(SharedArray))


def _registered(array: Memory) -> Memory:
    if array.size:
        _shared[array.ctypes.data] = array
    return array


def shared(array: np.ndarray) -> np.ndarray | None:
    """The memory of `empty`, where the array is the whole of it by whatever way it came; else None.

    Of `fresh` likewise, once: whoever asks has it then.
    """
    owner = _shared.get(array.ctypes.data) if array.size else None
    if owner is None or owner.nbytes != array.nbytes or owner.dtype != array.dtype:
        return None
    is_fresh = not isinstance(owner, SharedArray)
    if is_fresh:
        _shared.pop(array.ctypes.data, None)
    if owner.strides == array.strides:
        return owner if is_fresh else owner.view(np.ndarray)
    return owner.view(np.ndarray).reshape(array.shape) if array.flags.c_contiguous else None


def host(values: Any, what: str = "values", target: np.ndarray | None = None) -> Any:
    """A numpy array of an array of another library; anything else as it is.

    target: what is copied from a CUDA device may be put there, if it has the same shape and dtype.

    Raises `ShapeError` for numbers that numpy has not (bfloat16) and for tensors that require gradients,
    `DeviceError` for memory of a device that cannot be read.
    """
    if isinstance(values, (np.ndarray, list, tuple, float, int)) or values is None:
        return values
    if (found := on_cuda(values, what)) is not None:
        return found.host(target)
    if hasattr(values, "__dlpack__") and hasattr(values, "__dlpack_device__"):
        kind, _ = _device_of(values, what)
        if kind in _ON_HOST:
            return _of_host(values, what)
        name = _OTHERS.get(kind, "DLDeviceType")
        raise DeviceError(
            f"{what} is on a device of kind {kind} ({name}), which is not read. Copy it to the host."
        )
    return values


def on_cuda(values: Any, what: str = "values") -> CudaNumbers | None:
    """Where the numbers of an array of a CUDA device are; None: it is none.

    The legacy default stream waits until they are there. Errors as of `host`.
    """
    if isinstance(values, (np.ndarray, list, tuple, float, int)) or values is None:
        return None
    if isinstance(values, CudaNumbers):
        return values
    if hasattr(values, "__dlpack__") and hasattr(values, "__dlpack_device__"):
        kind, number = _device_of(values, what)
        return _of_capsule(_capsule(values, what), number, what) if kind == CUDA else None
    if hasattr(values, "__cuda_array_interface__"):
        return _of_interface(values, what)
    return None


@dataclass(frozen=True)
class Needs:
    """What rows of numbers have to be, beside finite."""

    quaternions: tuple[int, ...] = ()
    """First columns of what is nearly of unit length."""
    is_positive: bool = False
    is_symmetric: bool = False
    """Rows are matrices."""


def kept(values: Any, shape: tuple[int, ...], needs: Needs, what: str) -> Any:
    """An array of a CUDA device as `graph.columns.Elsewhere`: a copy on that device, which has looked at it.

    None: it is none, of another shape, small, not what it needs to be, or no solver's device is there; such
    an array goes through the host, where whoever refuses it says why.
    """
    numbers = on_cuda(values, what)
    if numbers is None or numbers.shape != shape or numbers.span < LEAST_KEPT:
        return None
    module, _, name = _KEEPER.partition(":")
    return getattr(importlib.import_module(module), name)(numbers, needs)


def assign(target: np.ndarray, values: Any, what: str) -> None:
    """target[...] = values, as `host` takes them; from a CUDA device straight there, where it can be.

    Raises `ShapeError` for a shape that does not broadcast.
    """
    found = host(values, what, target)
    if found is target:
        return
    try:
        target[...] = found
    except ValueError:
        shape = np.shape(found)
        if _broadcasts(shape, target.shape):
            raise
        raise ShapeError(
            f"{what} has shape {shape}, expected {target.shape}, or less to broadcast."
        ) from None


def _broadcasts(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, whole) == whole
    except ValueError:
        return False


def _device_of(values: Any, what: str) -> tuple[int, int]:
    """DLDeviceType and number. `DeviceError` for memory that dlpack has no name for (torch's "meta")."""
    try:
        kind, number = values.__dlpack_device__()
    except (ValueError, BufferError, RuntimeError) as error:
        where = getattr(values, "device", "a device")
        raise DeviceError(
            f"{what} is on a device of kind {where}, which is not read: {error}. Copy it to the host."
        ) from None
    return int(kind), int(number)


def _of_host(values: Any, what: str) -> np.ndarray:
    try:
        return np.from_dlpack(values)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        _refuse_gradients(values, what)
        try:
            found = np.asarray(values)
        except (TypeError, RuntimeError, ValueError):
            found = np.asarray(None)
        if found.dtype.kind in "fiub":
            return found
        raise _unreadable(values, what, error) from None


def _capsule(values: Any, what: str) -> Any:
    _refuse_gradients(values, what)
    try:
        return values.__dlpack__(stream=LEGACY_STREAM)
    except (BufferError, TypeError, RuntimeError, ValueError) as error:
        raise _unreadable(values, what, error) from None


def _unreadable(values: Any, what: str, error: Exception) -> ShapeError:
    dtype = getattr(values, "dtype", "unknown")
    return ShapeError(
        f"{what} of dtype {dtype} cannot be read: {str(error).rstrip('.')}. Convert it to dense float64 "
        "first."
    )


def _refuse_gradients(values: Any, what: str) -> None:
    if getattr(values, "requires_grad", False):
        raise ShapeError(
            f"{what}: the tensor requires gradients, which a graph does not record. Pass tensor.detach(), or "
            "use graphopt.torch.solve, through which gradients flow."
        ) from None


# ---------------------------------------------------------------- dlpack


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def _of_capsule(capsule: Any, device: int, what: str) -> CudaNumbers:
    """What a capsule "dltensor" describes; its deleter runs when the capsule goes."""
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    tensor = _Tensor.from_address(pointer_of(capsule, b"dltensor"))
    shape = tuple(tensor.shape[k] for k in range(tensor.ndim))
    dtype = _dtype(tensor.code, tensor.bits, tensor.lanes, what)
    strides = None
    if tensor.strides:
        strides = tuple(tensor.strides[k] * dtype.itemsize for k in range(tensor.ndim))
    return _numbers((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, device, capsule)


def _dtype(code: int, bits: int, lanes: int, what: str) -> np.dtype:
    if lanes != 1 or code not in _KINDS or bits % 8 or bits > 128:
        raise ShapeError(
            f"{what}: numbers of type code {code} with {bits} bits (DLDataType) are none of numpy's "
            "(bfloat16 has code 4). Convert the array to float64 first."
        )
    return np.dtype(f"{_KINDS[code]}{bits // 8}")


# ---------------------------------------------------------------- CUDA


@dataclass(frozen=True)
class CudaNumbers:
    """Numbers in a CUDA device's memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes, none negative."""
    dtype: np.dtype
    device: int
    """Ordinal."""
    keeps: Any
    """As long as this is there, so are the numbers."""

    @property
    def span(self) -> int:
        """Bytes from the first number to the end of the last, gaps included."""
        if 0 in self.shape:
            return 0
        steps = zip(self.shape, self.strides, strict=True)
        return sum((size - 1) * stride for size, stride in steps) + self.dtype.itemsize

    def host(self, target: np.ndarray | None = None) -> np.ndarray:
        """The array on the host: `target`, or what a graph may keep; with gaps their span comes along."""
        shape, dtype = self.shape, self.dtype
        if 0 in shape:
            return np.empty(shape, dtype)
        dense = compact(shape, dtype)
        if self.strides != dense:
            buffer = np.empty(self.span, np.uint8)
        elif target is not None and (target.shape, target.dtype, target.strides) == (shape, dtype, dense):
            buffer = target
        else:
            buffer = fresh(shape, dtype)
        cuda = Cuda()
        with cuda.context(self.device):
            cuda.copy_to_host(buffer.ctypes.data, self.address, self.span)
        return buffer if self.strides == dense else np.ndarray(shape, dtype, buffer, 0, self.strides)


def compact(shape: tuple[int, ...], dtype: np.dtype) -> tuple[int, ...]:
    """Strides of an array without gaps, row by row."""
    strides, step = [], dtype.itemsize
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _of_interface(values: Any, what: str) -> CudaNumbers:
    """What `__cuda_array_interface__` (version 3) describes, after its stream."""
    interface = values.__cuda_array_interface__
    missing = ", ".join(sorted({"data", "shape", "typestr"} - {*(interface or ())}))
    if missing:
        raise ShapeError(
            f"{what}: the __cuda_array_interface__ lacks {missing}, expected version 3. Copy it to the host."
        )
    if interface.get("mask") is not None:
        raise ShapeError(f"{what} is a CUDA array with a mask, which is not read. Fill masked places first.")
    address, _ = interface["data"]
    cuda = Cuda()
    device = cuda.device_of(address) if address else 0
    stream = interface.get("stream")
    if stream is not None:
        with cuda.context(device):
            cuda.synchronize(0 if stream == LEGACY_STREAM else stream)
    dtype = np.dtype(interface["typestr"])
    return _numbers(address, tuple(interface["shape"]), interface.get("strides"), dtype, device, values)


def _numbers(
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: np.dtype,
    device: int,
    keeps: Any,
) -> CudaNumbers:
    strides = compact(shape, dtype) if strides is None else tuple(strides)
    if any(stride < 0 for stride in strides):
        raise ShapeError(f"A CUDA array has strides {strides}: negative ones are not read. Copy it first.")
    return CudaNumbers(address, shape, strides, dtype, device, keeps)
