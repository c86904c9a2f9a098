"""Vertex, edge and parameter sets: one type each, one array per property.

    VertexSet      ids (n,), estimate (n, storage_dim), fixed (n,), marginalized (n,); where some vertex has
                   them, held (n, tangent_dim), lower and upper (n, storage_dim)
    EdgeSet        vertices (m, arity), measurement (m, measurement_dim), information (m, d, d), kernel (m,),
                   kernel_width (m,), level (m,), parameters (m, num_parameters)
    ParameterSet   ids (p,), values (p, storage_dim)

Every array is a live view: writing into it changes the graph (`edge_set.level[:] = 1`). A view taken before
the set grows beyond its capacity or loses rows is stale and read-only afterwards: take it again (see
`columns`). `ids` and `sequence` are read-only: the graph finds vertices and edges by them. The graph does not
check what is written through a view; `Graph.check()` does.

What is known of an array (`fingerprint`, `information_kind`, what optimizations keep) is found out anew where
numpy says that somebody may have written: where a view was taken, or is still there. Who keeps an address as
a number (`array.ctypes.data`, `array.__array_interface__`, a pointer in C++) and writes through it calls
`touch()` of the set afterwards, each time.

`sequence` (n,) int64 counts everything ever added to the graph, ascending in each set: it is the order of a
file's lines and the permanent name of an edge.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from copy import deepcopy
from secrets import token_bytes
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

import graphopt.graph.residuals as residuals
from graphopt.cpu_kernels import kernels
from graphopt.errors import GraphError, OptionError, UnknownIdError
from graphopt.foreign_arrays import CudaNumbers, Needs, assign, host, kept, on_cuda
from graphopt.graph.columns import Columns, Elsewhere, distinct_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphopt.symbolic.images import Image
    from graphopt.types import EdgeType, ParameterType, VertexType


class DeviceColumns(Protocol):
    """What has arrays of sets on a device that other libraries see, too."""

    def lend(self, one_set: Any, name: str) -> Any:
        """An array there with the present numbers of a column; None where it cannot."""
        ...

    def take(self, one_set: Any, name: str, numbers: CudaNumbers) -> Elsewhere | None:
        """Numbers of a column that are on the same device, copied there; None where it cannot."""
        ...


INFORMATION_KIND = "kind"
"""What `EdgeSet.information_kind` asks of a column."""
_ON_DEVICE: weakref.WeakKeyDictionary[_Set, weakref.ref[DeviceColumns]] = weakref.WeakKeyDictionary()


class _Set:
    """Rows of one type."""

    def __init__(self, columns: Columns):
        self.columns = columns
        """The arrays, for those that add and remove rows; others use the properties."""

    def __len__(self) -> int:
        return self.columns.num_rows

    @property
    def sequence(self) -> np.ndarray:
        """(n,) int64, ascending, read-only: the how-manieth thing that was added to the graph."""
        return self.columns.look("sequence")

    @property
    def generation(self) -> int:
        """Increases when views of this set become stale."""
        return self.columns.generation

    @property
    def nbytes(self) -> int:
        """Memory of the arrays, reserved rows included."""
        return self.columns.nbytes

    def look(self, name: str) -> np.ndarray:
        """The array of a name to read only; what is known of it stays so (see `columns`)."""
        return self.columns.look(name)

    def has(self, name: str) -> bool:
        """There is an array of this name."""
        return self.columns.has(name)

    def device_array(self, name: str, device: str | None = None) -> Any:
        """The array of a name for other libraries: `torch.from_dlpack(vertex_set.device_array("estimate"))`.

        After an optimization on a GPU which CUDA sees too, estimates, measurements, information and kernel
        widths are an array on that GPU, the same one until they change: copy it before writing, which does
        not change the graph. All else is the graph's own memory, with device="cpu" everything: what is
        written there changes it, and it stays valid as long as anybody has it (but is the graph's memory no
        more once the set has grown or lost rows).

        Raises `UnknownIdError` for a name that there is not, `OptionError` for another device.
        """
        if device not in (None, "cpu"):
            raise OptionError(f"device is {device!r}, expected 'cpu' or None: where the array is.")
        if not self.columns.has(name):
            known = ", ".join(self.columns.names)
            raise UnknownIdError(f"There is no array {name!r} here, expected one of {known}.")
        if device is None and (lent := self._lent(name)) is not None:
            return lent
        return self.columns.look(name) if name in ("ids", "sequence") else self.columns[name]

    def _lent(self, name: str) -> Any:
        """An array on the device that has optimized the graph, None: there is none."""
        if (known := self._columns_there()) is not None:
            return known.lend(self, name)
        source = self.columns.elsewhere(name)
        return None if source is None else source.lend()

    def _columns_there(self) -> DeviceColumns | None:
        lender = _ON_DEVICE.get(self)
        return None if lender is None else lender()

    def on_device(self, columns: DeviceColumns) -> None:
        """Arrays of the set are on a device as well, as long as this lives."""
        _ON_DEVICE[self] = weakref.ref(columns)

    def elsewhere(self, name: str) -> Elsewhere | None:
        """Numbers of an array that were assigned on a device, while nobody looks at them here."""
        return self.columns.elsewhere(name)

    def stays_elsewhere(self, name: str, source: Elsewhere) -> bool:
        """Let an array be numbers on a device, until somebody looks; False: somebody may have it here."""
        return self.columns.fill_later(name, source)

    def _assign(self, name: str, values: object) -> None:
        """Numbers of a float64 column; on the device that optimizes the graph they stay there."""
        numbers = on_cuda(values, name)
        if numbers is not None:
            known = self._columns_there()
            source = (
                kept(numbers, self.shape_of(name), Needs(), name)
                if known is None
                else known.take(self, name, numbers)
            )
            if source is not None and self.stays_elsewhere(name, source):
                return
        if self.columns.elsewhere(name) is None:
            assign(self.columns[name], values if numbers is None else numbers, name)
        else:
            found = np.broadcast_to(host(values if numbers is None else numbers, name), self.shape_of(name))
            self.columns.overwrite(name)[...] = found

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Of the array of a name."""
        return self.columns.shape(name)

    def numbers_of(self, name: str) -> np.ndarray:
        """What `device_array` gives, on the host and to read only."""
        return self.columns.look(name)

    def touch(self) -> None:
        """Say that arrays of this set were written by an address, which nothing else can see."""
        self.columns.touch()

    def fingerprint(self, name: str) -> bytes:
        """16 bytes that tell contents of the array of a name apart.

        Looked for where somebody may have written since the last time.
        """
        return self.columns.known(name, "fingerprint", _fingerprint)


class VertexSet(_Set):
    """All vertices of one type."""

    def __init__(self, vertex_type: VertexType, columns: Columns | None = None):
        super().__init__(
            columns
            or Columns(
                {
                    "sequence": ((), np.int64),
                    "ids": ((), np.int64),
                    "estimate": ((vertex_type.storage_dim,), np.float64),
                    "fixed": ((), np.bool_),
                    "marginalized": ((), np.bool_),
                }
            )
        )
        self.type = vertex_type

    def __repr__(self) -> str:
        return f"<VertexSet {self.type.tag}: {len(self)} vertices, {int(self.fixed.sum())} fixed>"

    @property
    def ids(self) -> np.ndarray:
        """(n,) int64, read-only: the graph finds vertices by id."""
        return self.columns.look("ids")

    @property
    def estimate(self) -> np.ndarray:
        """(n, storage_dim) float64."""
        return self.columns["estimate"]

    @estimate.setter
    def estimate(self, values: object) -> None:
        self._assign("estimate", values)

    def overwrite_estimate(self) -> np.ndarray:
        """(n, storage_dim) `estimate` for who writes all of it."""
        return self.columns.overwrite("estimate")

    @property
    def fixed(self) -> np.ndarray:
        """(n,) bool: held constant."""
        return self.columns["fixed"]

    @fixed.setter
    def fixed(self, values: object) -> None:
        assign(self.columns["fixed"], values, "fixed")

    @property
    def marginalized(self) -> np.ndarray:
        """(n,) bool: eliminated by the Schur complement."""
        return self.columns["marginalized"]

    @marginalized.setter
    def marginalized(self, values: object) -> None:
        assign(self.columns["marginalized"], values, "marginalized")

    @property
    def held(self) -> np.ndarray | None:
        """(n, tangent_dim) bool: components of an update that stay zero; None while no vertex holds any."""
        return self.columns["held"] if self.columns.has("held") else None

    @held.setter
    def held(self, values: object) -> None:
        assign(self.make_room_to_hold(), values, "held")

    def make_room_to_hold(self) -> np.ndarray:
        """`held`, which is there from now on."""
        if not self.columns.has("held"):
            self.columns.add_column("held", (self.type.tangent_dim,), np.bool_)
        return self.columns["held"]

    @property
    def has_room_for_components(self) -> bool:
        """`held` is there: some vertex may hold a component, or did once."""
        return self.columns.has("held")

    @property
    def holds_components(self) -> bool:
        """Some vertex holds a component."""
        return self.columns.has("held") and bool(self.look("held").any())

    @property
    def lower(self) -> np.ndarray | None:
        """(n, storage_dim) lower bounds of estimates, -inf: none; None while no vertex has a bound."""
        return self.columns["lower"] if self.columns.has("lower") else None

    @property
    def upper(self) -> np.ndarray | None:
        """(n, storage_dim) upper bounds of estimates, inf: none; None while no vertex has a bound."""
        return self.columns["upper"] if self.columns.has("upper") else None

    def make_room_for_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """`lower` and `upper`, which are there from now on."""
        for name, fill in (("lower", -np.inf), ("upper", np.inf)):
            if not self.columns.has(name):
                self.columns.add_column(name, (self.type.storage_dim,), np.float64, fill)
        return self.columns["lower"], self.columns["upper"]

    @property
    def has_bounds(self) -> bool:
        """Some vertex has a bound."""
        return self.columns.has("lower") and not (
            bool((self.look("lower") == -np.inf).all()) and bool((self.look("upper") == np.inf).all())
        )

    def copy(self) -> VertexSet:
        """Independent set with the same vertices."""
        return VertexSet(self.type, self.columns.copy())


class ParameterSet(_Set):
    """All parameters of one type: constants that edges share, such as a sensor's mounting."""

    def __init__(self, parameter_type: ParameterType, columns: Columns | None = None):
        super().__init__(
            columns
            or Columns(
                {
                    "sequence": ((), np.int64),
                    "ids": ((), np.int64),
                    "values": ((parameter_type.storage_dim,), np.float64),
                }
            )
        )
        self.type = parameter_type
        self._images: dict[int, Image] = {}

    def __repr__(self) -> str:
        return f"<ParameterSet {self.type.tag}: {len(self)} parameters>"

    @property
    def ids(self) -> np.ndarray:
        """(p,) int64, read-only: the graph finds parameters by id."""
        return self.columns.look("ids")

    @property
    def values(self) -> np.ndarray:
        """(p, storage_dim) float64."""
        return self.columns["values"]

    @values.setter
    def values(self, values: object) -> None:
        assign(self.columns["values"], values, "values")

    @property
    def images(self) -> list[Image]:
        """Where the type's values are images: the image of each parameter (p)."""
        return [self._images[int(handle)] for handle in self.values[:, 0]] if self.type.image else []

    def keep_images(self, images: Iterable[Image]) -> None:
        """Keep images alive whose handles were written into `values`; drop those that left it."""
        if self.type.image is None:
            return
        self._images.update((image.planes[0], image) for image in images)
        used = set(self.values[:, 0].astype(int).tolist())
        self._images = {handle: image for handle, image in self._images.items() if handle in used}

    def _own_images(self) -> None:
        """Give this set images of its own, with the same pixels."""
        if self._images:
            twins = {handle: deepcopy(image) for handle, image in self._images.items()}
            images = [twins[int(handle)] for handle in self.values[:, 0]]
            self.values[...] = [image.planes for image in images]
            self.keep_images(images)

    def __getstate__(self) -> dict[str, object]:
        """Images travel as pixels, with the parameters they belong to."""
        kept = {handle: image for handle, image in self._images.items()}
        return {"type": self.type, "columns": self.columns, "images": kept}

    def __setstate__(self, state: dict) -> None:
        """The images have other handles in this process."""
        self.type, self.columns = state["type"], state["columns"]
        self._images = {}
        if state["images"]:
            old = self.values[:, 0].astype(int).tolist()
            images = [state["images"][handle] for handle in old]
            self.values[...] = [image.planes for image in images]
            self.keep_images(images)

    def copy(self) -> ParameterSet:
        """Independent set with the same parameters, and images of its own with the same pixels."""
        other = ParameterSet(self.type, self.columns.copy())
        other._images = dict(self._images)
        other._own_images()
        return other


class EdgeSet(_Set):
    """All edges of one type and arity."""

    def __init__(self, edge_type: EdgeType, columns: Columns | None = None):
        dim = edge_type.residual_dim
        super().__init__(
            columns
            or Columns(
                {
                    "sequence": ((), np.int64),
                    "vertices": ((len(edge_type.vertices),), np.int64),
                    "measurement": ((edge_type.measurement_dim,), np.float64),
                    "information": ((dim, dim), np.float64),
                    "kernel": ((), np.int32),
                    "kernel_width": ((), np.float64),
                    "level": ((), np.int32),
                    "parameters": ((len(edge_type.parameters),), np.int64),
                }
            )
        )
        self.type = edge_type
        self._owner: weakref.ref[residuals.Graph] | None = None

    def __repr__(self) -> str:
        return f"<EdgeSet {self.type.tag}: {len(self)} edges between {self.arity} vertices>"

    def __iter__(self) -> Iterator[int]:
        raise TypeError("An edge set is not iterable; use its arrays, or graph.edges() for edge objects.")

    def __getstate__(self) -> dict[str, object]:
        """The graph takes its sets when it is read."""
        return {**vars(self), "_owner": None}

    @property
    def graph(self) -> residuals.Graph:
        """The graph that has these edges. `GraphError` for a set that is in none any more."""
        graph = None if self._owner is None else self._owner()
        if graph is None:
            raise GraphError(
                f"This set of {self.type.tag} edges belongs to no graph, so nothing says where it is."
            )
        return graph

    @graph.setter
    def graph(self, graph: residuals.Graph) -> None:
        self._owner = weakref.ref(graph)

    def errors(self, rows: object = None) -> np.ndarray:
        """(k, residual_dim) errors at the present estimates, of all edges or of `rows` (numbers, mask)."""
        return residuals.errors(self.graph, self, self._chosen(rows))

    def device_array(self, name: str, device: str | None = None) -> Any:
        """As of the other sets; "residuals" are computed at the present estimates, (m, residual_dim)."""
        if name == "residuals" and device in (None, "cpu"):
            lent = self._lent(name) if device is None else None
            return self.errors() if lent is None else lent
        return super().device_array(name, device)

    def shape_of(self, name: str) -> tuple[int, ...]:
        """Of the array of a name, "residuals" included."""
        return (len(self), self.type.residual_dim) if name == "residuals" else super().shape_of(name)

    def numbers_of(self, name: str) -> np.ndarray:
        """What `device_array` gives, on the host and to read only."""
        return self.errors() if name == "residuals" else super().numbers_of(name)

    def fingerprint(self, name: str) -> bytes:
        """As of the other sets; of "residuals" that of all they follow from, new each time with images."""
        return self._residuals_fingerprint() if name == "residuals" else super().fingerprint(name)

    def _residuals_fingerprint(self) -> bytes:
        graph = self.graph
        vertex_sets = [one for one in graph.vertex_sets if one.type in self.type.vertices]
        parameter_sets = [one for one in graph.parameter_sets if one.type in self.type.parameters]
        if any(one.type.image is not None for one in parameter_sets):
            return token_bytes(16)
        found = [one.fingerprint("estimate") for one in vertex_sets]
        found += [one.fingerprint("values") for one in parameter_sets]
        found += [self.fingerprint(name) for name in ("measurement", "vertices", "parameters")]
        return b"".join([*found, graph.version.to_bytes(8, "little")])

    def chi2(self, rows: object = None, *, robust: bool = True) -> np.ndarray:
        """(k,) rho(e' Omega e) of each edge at the present estimates; `robust=False` leaves rho out."""
        function = residuals.robust_chi2 if robust else residuals.edge_chi2
        return function(self.graph, self, self._chosen(rows))

    def _chosen(self, rows: object) -> np.ndarray:
        """Row numbers (k,) int64."""
        everything = np.arange(len(self))
        try:
            return everything if rows is None else np.atleast_1d(everything[rows])  # type: ignore[index]
        except IndexError as error:
            raise UnknownIdError(f"{self.type.tag} has {len(self)} edges: {error}.") from None

    @property
    def arity(self) -> int:
        """Number of vertices of each edge."""
        return len(self.type.vertices)

    @property
    def vertices(self) -> np.ndarray:
        """(m, arity) int64: vertex ids."""
        return self.columns["vertices"]

    @property
    def measurement(self) -> np.ndarray:
        """(m, measurement_dim) float64."""
        return self.columns["measurement"]

    @measurement.setter
    def measurement(self, values: object) -> None:
        self._assign("measurement", values)

    @property
    def information(self) -> np.ndarray:
        """(m, d, d) float64, symmetric: inverse covariance of the measurement."""
        return self.columns["information"]

    @information.setter
    def information(self, values: object) -> None:
        self._assign("information", values)

    def information_kind(self, rows: np.ndarray | None = None) -> str:
        """What the information matrices of rows (None: all) all are: "identity", "diagonal" or "full"."""
        if rows is not None:
            return kernels.information_kind(self.look("information"), rows)
        return self.columns.known("information", INFORMATION_KIND, _kind_of_all)

    @property
    def kernel(self) -> np.ndarray:
        """(m,) int32: 0 for none, else a robust kernel's number (`types.robust_kernels.KERNELS`)."""
        return self.columns["kernel"]

    @kernel.setter
    def kernel(self, values: object) -> None:
        assign(self.columns["kernel"], values, "kernel")

    @property
    def kernel_width(self) -> np.ndarray:
        """(m,) float64: the robust kernel's delta, in units of the square root of chi2."""
        return self.columns["kernel_width"]

    @kernel_width.setter
    def kernel_width(self, values: object) -> None:
        self._assign("kernel_width", values)

    @property
    def level(self) -> np.ndarray:
        """(m,) int32: an optimization takes the edges of one level."""
        return self.columns["level"]

    @level.setter
    def level(self, values: object) -> None:
        assign(self.columns["level"], values, "level")

    @property
    def parameters(self) -> np.ndarray:
        """(m, num_parameters) int64: parameter ids."""
        return self.columns["parameters"]

    def copy(self) -> EdgeSet:
        """Independent set with the same edges."""
        return EdgeSet(self.type, self.columns.copy())


def _fingerprint(array: np.ndarray) -> bytes:
    return kernels.fingerprint(distinct_rows(array))


def _kind_of_all(information: np.ndarray) -> str:
    return kernels.information_kind(distinct_rows(information), None)
