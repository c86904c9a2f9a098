"""Random edges of any type, laid out for the generated kernels, and dense answers in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from vulkan_devices import shared_device

from graphopt.codegen import compile_edge, pack_information
from graphopt.codegen.gpu import EDGE_BLOCK, TILE, EdgeSignature, float32_record_dim, record_dim
from graphopt.device import VulkanDevice
from graphopt.symbolic import sampling
from graphopt.types.base import VariadicEdgeType, working_edge_type
from graphopt.types.robust_kernels import KERNELS
from graphopt.vulkan.data.images import plane_table

NOTHING = 0xFFFFFFFF


def instance(kind):
    """Edge type with a fixed number of vertices, between working forms."""
    return working_edge_type(kind.instantiate(3) if isinstance(kind, VariadicEdgeType) else kind)


def working_identity(vertex, original):
    """Identity of a vertex in its working form."""
    identity = np.array([original.identity], float)
    return original.working.encode(identity)[0] if original.working is not None else identity[0]


def packed(records, stride, dtype):
    """(n, dim) -> flat array of records of `stride` numbers."""
    out = np.zeros((len(records), stride), dtype)
    out[:, : records.shape[1]] = records
    return out.ravel()


def blocked(columns, dtype):
    """(n, k) -> blocks of 64 edges, entry by entry; padded with copies of the last edge."""
    n, k = columns.shape
    if k == 0:
        return np.zeros(4, dtype)
    padded = -(-n // EDGE_BLOCK) * EDGE_BLOCK
    full = np.concatenate([columns, np.repeat(columns[-1:], padded - n, axis=0)])
    return np.ascontiguousarray(full.reshape(-1, EDGE_BLOCK, k).transpose(0, 2, 1), dtype).ravel()


@dataclass
class View:
    """Edges sorted by the vertex in one slot."""

    slot: int
    edges: np.ndarray
    """Edges of the case in the view's order."""
    first: np.ndarray
    destinations: np.ndarray
    """Vertex rows."""
    tiles: np.ndarray

    @property
    def num_tiles(self):
        """Tiles of destinations."""
        return len(self.tiles) - 1

    @property
    def num_fixed_tiles(self):
        """Tiles of edges after the last destination."""
        return -(-(len(self.edges) - int(self.first[-1])) // TILE)


class Case:
    """n edges on a few vertices per slot, some of them fixed; slots of one type share a set."""

    def __init__(self, kind, n=150, information="full", kernel=0, seed=0, num_vertices=7, images=()):
        """images: which image parameters and the kind's residual sample."""
        self.images = images
        rng = np.random.default_rng(seed)
        original = kind.instantiate(3) if isinstance(kind, VariadicEdgeType) else kind
        self.type = instance(kind)
        self.signature = EdgeSignature(self.type, information, kernel)
        self.n = n
        self.estimates, self.free, self.offsets, self.dim = [], [], [], 0
        for slot, (vertex, old) in enumerate(zip(self.type.vertices, original.vertices, strict=True)):
            shared = self.signature.set_of_slot(slot)
            if shared < slot:
                for arrays in (self.estimates, self.free, self.offsets):
                    arrays.append(arrays[shared])
                continue
            start = np.tile(working_identity(vertex, old), (num_vertices, 1))
            states = vertex.oplus(start, 0.4 * rng.normal(size=(num_vertices, vertex.tangent_dim)))
            self.estimates.append(np.asarray(states, float))
            self.free.append(np.arange(num_vertices) % 4 != 3)
            offset = np.full(num_vertices, NOTHING, np.uint32)
            offset[self.free[-1]] = self.dim + vertex.tangent_dim * np.arange(self.free[-1].sum())
            self.dim += vertex.tangent_dim * int(self.free[-1].sum())
            self.offsets.append(offset)
        skew = rng.random(n) ** 3
        self.rows = np.stack(
            [
                (skew * num_vertices).astype(np.uint32) if k == 0 else rng.integers(num_vertices, size=n)
                for k in range(self.signature.arity)
            ],
            axis=1,
        ).astype(np.uint32)
        self.parameters = [self.drawn_parameter(p, rng) for p in self.type.parameters]
        self.parameters = [
            self.parameters[self.signature.set_of_parameter(k)] for k in range(len(self.parameters))
        ]
        self.parameter_rows = rng.integers(3, size=(n, len(self.parameters))).astype(np.uint32)
        self.measurement = self.drawn_measurement(original, rng)
        self.information = self.drawn_information(information, rng)
        self.width = rng.uniform(0.5, 3.0, n)
        self.x = rng.normal(size=self.dim)

    def drawn_parameter(self, parameter, rng):
        """Random values, or handles of images."""
        if parameter.image is not None:
            own = [image.planes for image in self.images if image.channels == parameter.image.channels]
            return np.array([own[k % len(own)] for k in range(3)], float)
        values = np.tile(np.array(parameter.identity, float), (3, 1))
        values = values + rng.uniform(0.1, 0.5, values.shape)
        if parameter.storage_dim >= 7:
            values[:, 3:7] /= np.linalg.norm(values[:, 3:7], axis=-1, keepdims=True)
        return values

    def drawn_measurement(self, original, rng):
        """Random ones, as the type wraps them."""
        measurement = rng.normal(size=(self.n, original.measurement_dim))
        name = getattr(original.wrap_measurement, "__name__", "")
        if name in ("SE3", "Sim3"):
            measurement[:, 3:7] /= np.linalg.norm(measurement[:, 3:7], axis=-1, keepdims=True)
        if name == "Sim3":
            measurement[:, 7] = np.exp(0.3 * measurement[:, 7])
        if original.tag.startswith("EDGE_VI_POSE_"):
            measurement[:, -1] += 6.0  # the known landmark: before the camera, where differences are good
        return measurement

    def drawn_information(self, variant, rng):
        """Of a kind."""
        d = self.type.residual_dim
        if variant == "identity":
            return np.tile(np.eye(d), (self.n, 1, 1))
        if variant == "diagonal":
            return np.eye(d) * rng.uniform(0.5, 2.0, size=(self.n, 1, d))
        a = rng.normal(size=(self.n, d, d)) / np.sqrt(d)
        return a @ a.transpose(0, 2, 1) + np.eye(d)

    # ---------------------------------------------------------------- layout

    def view(self, slot, primary):
        """The view of a slot; the primary one has the edges of fixed vertices at its end."""
        rows = self.rows[:, slot]
        free = self.free[slot][rows]
        order = np.argsort(np.where(free, rows, len(self.free[slot])), kind="stable")
        edges = order if primary else order[: int(free.sum())]
        destinations, counts = np.unique(rows[free], return_counts=True)
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)
        tiles, begin = [0], 0
        for d in range(len(destinations)):
            if first[d + 1] - first[begin] > TILE and d > begin:
                tiles.append(d)
                begin = d
        tiles.append(len(destinations))
        return View(slot, edges, first, destinations, np.array(tiles, np.uint32))

    def arrays(self, order):
        """Buffers of the edges in this order, and of the vertices: name -> array."""
        s = self.signature
        data = [self.measurement, pack_information(self.information, s.information)]
        data += [self.width[:, None]] if s.kernel else []
        table = np.concatenate(data, axis=1)[order]
        rows = np.concatenate([self.rows, self.parameter_rows], axis=1)[order]
        result = {
            "rows": blocked(rows, np.uint32),
            "data": blocked(table, np.float64),
            "data_float32": blocked(table, np.float32),
        }
        for k, (vertex, states) in enumerate(zip(self.type.vertices, self.estimates, strict=True)):
            result[f"estimate{k}"] = packed(states, record_dim(vertex.storage_dim), np.float64)
            result[f"float32_estimate{k}"] = packed(
                states, float32_record_dim(vertex.storage_dim), np.float32
            )
            result[f"offset{k}"] = self.offsets[k]
        for k, (parameter, values) in enumerate(zip(self.type.parameters, self.parameters, strict=True)):
            result[f"parameter{k}"] = packed(values, record_dim(parameter.storage_dim), np.float64)
            narrow = packed(values, float32_record_dim(parameter.storage_dim), np.float32)
            result[f"float32_parameter{k}"] = narrow
        planes = {0: sampling.plane(0)}
        planes |= {handle: sampling.plane(handle) for image in self.images for handle in image.planes}
        result["planes"] = plane_table(planes)[0]
        result["pixels"] = np.concatenate([plane.ravel() for plane in planes.values()])
        return result

    # ---------------------------------------------------------------- dense answers

    def evaluate(self):
        """e, Jacobians per slot, rho and weight of every edge, by the bytecode's definition."""
        kernels = compile_edge(self.type)
        inputs = np.concatenate(
            [
                *(x[self.rows[:, k]] for k, x in enumerate(self.estimates)),
                *(p[self.parameter_rows[:, k]] for k, p in enumerate(self.parameters)),
                self.measurement,
            ],
            axis=1,
        )
        error = kernels.errors.interpret(inputs)
        flat = kernels.jacobians.interpret(inputs)
        d = self.type.residual_dim
        sizes = np.cumsum([d * v.tangent_dim for v in self.type.vertices])[:-1]
        jacobians = [part.reshape(self.n, d, -1) for part in np.split(flat, sizes, axis=1)]
        chi2 = np.einsum("ni,nij,nj->n", error, self.information, error)
        rho, weight = KERNELS[self.signature.kernel].function(chi2, self.width)
        return error, jacobians, np.asarray(rho), np.broadcast_to(weight, chi2.shape)


@cache
def device_without_float64(access):
    """A device where the kernels have float32 only."""
    masked = ["float64", *(["buffer_address"] if access == "storage" else [])]
    return VulkanDevice(validation=True, masked_features=masked)


def runner_for(access, arithmetic):
    """Kernels of one arithmetic on the device of one access variant."""
    two_float = arithmetic == "two_float"
    return Runner(device_without_float64(access) if two_float else shared_device(access), arithmetic)


class Runner:
    """Runs kernels on a device with named arrays."""

    def __init__(self, device, arithmetic):
        self.device = device
        self.arithmetic = arithmetic
        self.real = np.float64 if arithmetic == "double" else np.float32

    def encode(self, array, name):
        """Host array as the device has it."""
        array = np.ascontiguousarray(array)
        if self.arithmetic == "two_float" and array.dtype == np.float64:
            high = array.astype(np.float32)
            with np.errstate(invalid="ignore"):
                low = np.where(np.isfinite(high), array - high, 0.0).astype(np.float32)
            return np.stack([high, low], axis=-1)
        return array

    def run(self, kernel, arrays, params, groups, outputs, repeat=1):
        """Dispatch once (or `repeat` times) and return the arrays called `outputs`."""
        compiled = self.device.generated(kernel)
        buffers = {name: self.device.upload(self.encode(arrays[name], name)) for name in kernel.buffers}
        recorder = self.device.record()
        for _ in range(repeat):
            recorder.dispatch(
                compiled,
                [buffers[name] for name in kernel.buffers],
                [params[name] for name in kernel.params],
                groups,
            ).barrier()
        self.device.submit(recorder.finish()).wait()
        return [self.download(buffers[name], arrays[name]) for name in outputs]

    def download(self, buffer, like):
        """The buffer's contents as an array of the kind of `like`."""
        if self.arithmetic == "two_float" and like.dtype == np.float64:
            return self.device.download(buffer, np.float32, 2 * like.size).astype(float).reshape(-1, 2).sum(1)
        return self.device.download(buffer, like.dtype, like.size)


def upper_triangles(blocks: np.ndarray) -> np.ndarray:
    """(n, d (d + 1) / 2) of symmetric blocks (n, d, d), by columns."""
    dim = blocks.shape[1]
    return np.stack([blocks[:, i, j] for j in range(dim) for i in range(j + 1)], axis=1)
