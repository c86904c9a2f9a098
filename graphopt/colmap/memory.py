"""A `pycolmap.Reconstruction` as arrays and back, in one native pass over its own memory.

pycolmap gives its points one by one, 5 us each. But each of its coordinates is a view of the C++ object, and
the points are the nodes of one linked list (`std::unordered_map`), the keypoints of an image one array. Where
in a node the key, the coordinates and the pointer to the next are is found out once per process, in a
reconstruction made for it whose numbers are known; where they are not found, points are taken one by one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from graphopt._native import read_nodes, write_nodes
from graphopt.colmap.model import (
    CAMERA,
    NO_POINT,
    SENSOR_TYPES,
    ColmapCamera,
    ColmapFrames,
    ColmapImages,
    ColmapModel,
    ColmapPoints,
    ColmapRig,
    ColmapSensor,
    Observations,
)
from graphopt.cpu_kernels import kernels
from graphopt.errors import FormatError, OptionError
from graphopt.graph import Graph
from graphopt.io.extra_types import SENSOR_TAG

_NUMBERS = {word: number for number, word in SENSOR_TYPES.items()}
_AROUND = 4
"""Words of 8 bytes before the coordinates in which key and next pointer are looked for."""
_WORDS_OF_CONFIG = 43
"""Of a config in all versions: its gauge and six sets of 7 words."""
_LOST = "a keypoint names point {}, which the reconstruction does not have"


class Layout(NamedTuple):
    """Where things are in pycolmap's memory, in bytes."""

    node: tuple[int, int, int]
    """Next pointer, key and coordinates of a point's node."""
    stride: int
    """Of keypoints."""
    point_id: int
    """From a keypoint's coordinates to the id of its point."""


def _address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _words(address: int, count: int) -> list[int]:
    import ctypes

    return list((ctypes.c_uint64 * count).from_address(address))


@cache
def layout() -> Layout | None:
    """Where this pycolmap has its numbers; None: they are not where they are looked for."""
    import pycolmap

    options = pycolmap.SyntheticDatasetOptions()
    options.num_rigs, options.num_cameras_per_rig, options.num_frames_per_rig = 1, 1, 2
    options.num_points3D = 7
    made = pycolmap.synthesize_dataset(options)
    items = list(made.points3D.items())
    found = _node_layout([(int(key), _address(point.xyz)) for key, point in items])
    keypoints = next(iter(made.images.values())).points2D
    addresses = [_address(keypoints[row].xy) for row in range(len(keypoints))]
    strides = set(np.diff(addresses).tolist())
    if found is None or len(strides) != 1:
        return None
    (stride,) = strides
    ids = [int(keypoint.point3D_id) for keypoint in keypoints]
    places = [
        8 * word
        for word in range(2, int(stride) // 8)
        if all(_words(at + 8 * word, 1)[0] == id_ % 2**64 for at, id_ in zip(addresses, ids, strict=True))
    ]
    if len(places) != 1:
        return None
    whole = Layout(found, int(stride), places[0])
    return whole if _agrees(made, whole) else None


def _node_layout(items: list[tuple[int, int]]) -> tuple[int, int, int] | None:
    """Next pointer, key and value of nodes, from keys and addresses of values in the order of the list."""
    keys = [
        word for word in range(1, _AROUND + 1) if all(_words(at - 8 * word, 1)[0] == key for key, at in items)
    ]
    if not keys:
        return None
    for before in range(keys[0] + 1, _AROUND + 1):
        targets = [_words(at - 8 * before, 1)[0] for _, at in items]
        shifts = {at - target for target, (_, at) in zip(targets, items[1:], strict=False)}
        if targets[-1] == 0 and len(shifts) == 1:
            start = shifts.pop()  # from the start of a node to its coordinates
            if 0 < start <= 8 * _AROUND:
                return start - 8 * before, start - 8 * keys[0], start
    return None


def _agrees(made: Any, where: Layout) -> bool:
    """Whether all numbers of a reconstruction are read as pycolmap says them."""
    nodes, first = _points(made, where)
    known = {int(key): point.xyz for key, point in made.points3D.items()}
    return (
        first is not None
        and nodes.ids[nodes.rows].tolist() == list(known)
        and all((place == known[id_]).all() for id_, place in zip(nodes.ids.tolist(), nodes.xyz, strict=True))
    )


class ConfigLayout(NamedTuple):
    """Where a config has its sets."""

    is_held: bool
    """The Python object points to what points to the C++ object, not to this itself."""
    sets: tuple[int, int, int]
    """Words of the C++ object at which images, variable and constant points begin: first node, and count."""


def _peek(address: int, count: int) -> list[int]:
    """Words of 8 bytes of this process; OSError where there is no memory, instead of a crash."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        found = os.pread(memory.fileno(), 8 * count, address)
    if len(found) < 8 * count:
        raise OSError(f"no memory at {address:#x}")
    return np.frombuffer(found, np.uint64).tolist()


@cache
def _config_layout() -> ConfigLayout | None:
    """Found out in a config with known contents; None: it is not where it is looked for."""
    import pycolmap

    made = pycolmap.BundleAdjustmentConfig()
    counts = 37, 41, 43
    adders = made.add_image, made.add_variable_point, made.add_constant_point
    for count, add in zip(counts, adders, strict=True):
        for number in range(count):
            add(1000 * count + number)
    for is_held in (False, True):
        try:
            words = _peek(_config(made, is_held), _WORDS_OF_CONFIG)
            first, second, third = (words.index(count, 1) - 1 for count in counts)
            where = ConfigLayout(is_held, (first, second, third))
            if _sets(made, where) is not None:
                return where
        except (OSError, ValueError, OverflowError):
            continue
    return None


def _config(config: Any, is_held: bool) -> int:
    """Address of the C++ object of a config."""
    (address,) = _peek(id(config) + object.__basicsize__, 1)
    return _peek(address, 1)[0] if is_held else address


def _sets(config: Any, where: ConfigLayout) -> list[np.ndarray] | None:
    """Ids in the order of their nodes; None where they are not those of the config."""
    words, found = _peek(_config(config, where.is_held), _WORDS_OF_CONFIG), []
    expected = config.images, config.variable_points, config.constant_points
    for place, mask, ids in zip(where.sets, (2**32 - 1, 2**64 - 1, 2**64 - 1), expected, strict=True):
        node, keys = words[place], np.empty(len(ids), np.int64)
        for row in range(len(ids)):
            node, key = _peek(node, 2)
            keys[row] = key & mask
        if set(keys.tolist()) != set(ids):
            return None
        found.append(keys)
    return found


def order_in_config(config: Any) -> list[np.ndarray] | None:
    """Ids of a pycolmap config in its own order: images, variable and constant points; None: unknown."""
    if type(config).__name__ != "BundleAdjustmentConfig":
        return None
    import pycolmap

    where = _config_layout() if isinstance(config, pycolmap.BundleAdjustmentConfig) else None
    return None if where is None else _sets(config, where)


class Nodes(NamedTuple):
    """All points of a reconstruction."""

    ids: np.ndarray  # (n,) int64, ascending
    xyz: np.ndarray  # (n, 3)
    rows: np.ndarray  # (n,) of each point in pycolmap's order


def _points(reconstruction: Any, where: Layout | None) -> tuple[Nodes, int | None]:
    """All points, and the address of the first node where they were read there."""
    points = reconstruction.points3D
    count = len(points)
    if where is None or count == 0:
        items = sorted((int(key), point.xyz) for key, point in points.items())
        ids = np.array([key for key, _ in items], np.int64)
        return Nodes(
            ids, np.array([xyz for _, xyz in items], float).reshape(-1, 3), np.empty(0, np.int32)
        ), None
    first = _address(next(iter(points.values())).xyz) - where.node[2]
    *nodes, found = read_nodes(first, count, where.node)
    if found != count:
        raise FormatError(f"the reconstruction has {count} points, {found} were found")
    return Nodes(*nodes), first


def refuse_lost_sensors(reconstruction: Any, graph: Graph, is_scaled: bool) -> None:
    """`OptionError` where sensor poses would be refined or scaled, which pycolmap 3.12 cannot write."""
    rigs: Any = getattr(reconstruction, "rigs", None)
    if not hasattr(rigs, "values"):  # a model of our own or a folder
        return
    changes = is_scaled and any(rig.non_ref_sensors for rig in rigs.values())
    changes |= any((~each.look("fixed")).any() for each in graph.vertex_sets if each.type.tag == SENSOR_TAG)
    if not changes:
        return
    if not all(hasattr(rig, "set_sensor_from_rig") for rig in rigs.values()):
        raise OptionError(
            "this version of pycolmap cannot set poses of sensors in rigs (no Rig.set_sensor_from_rig). "
            "Set options.refine_sensor_from_rig = False and pass no pose_priors, which scale the model; use "
            "a newer pycolmap; or give the model's folder."
        )


class Scene:
    """A reconstruction that is refined in place."""

    def __init__(self, reconstruction: Any):
        """Takes its images that have a pose, their observations, and what these need."""
        self.reconstruction = reconstruction
        self._layout = layout()
        nodes, self._first = _points(reconstruction, self._layout)
        self._rows = nodes.rows
        images = sorted((int(id_), image) for id_, image in reconstruction.images.items() if image.has_pose)
        seen = _observations([image for _, image in images], nodes.ids, self._layout)
        empty = np.empty(0, np.int64)
        nothing = np.empty((0, 3), np.uint8), np.empty(0), empty, np.empty((0, 2), np.int64)
        points = ColmapPoints(nodes.ids, nodes.xyz, *nothing)
        self.model = ColmapModel(_cameras(reconstruction), _images(images), points, seen=seen)
        self.model.rigs = _rigs(reconstruction)
        self.model.frames = _frames(reconstruction, images)

    def put(self, refined: ColmapModel) -> None:
        """Set what differs from `model` in the reconstruction."""
        for before, camera in zip(self.model.cameras, refined.cameras, strict=True):
            if not np.array_equal(before.params, camera.params):
                self.reconstruction.camera(camera.id).params = camera.params
        self._put_poses(refined)
        self._put_points(refined.points.xyz)

    def _put_poses(self, refined: ColmapModel) -> None:
        assert self.model.frames is not None and refined.frames is not None
        moved = (self.model.frames.pose != refined.frames.pose).any(axis=1)
        for row in np.flatnonzero(moved).tolist():
            frame = self.reconstruction.frame(int(refined.frames.ids[row]))
            frame.rig_from_world = _rigid(refined.frames.pose[row])
        for before, rig in zip(self.model.rigs, refined.rigs, strict=True):
            for old, sensor in zip(before.sensors, rig.sensors, strict=True):
                if sensor.pose is not None and (old.pose is None or (old.pose != sensor.pose).any()):
                    _put_sensor(self.reconstruction.rig(rig.id), sensor)

    def _put_points(self, xyz: np.ndarray) -> None:
        before = self.model.points
        if np.array_equal(xyz, before.xyz):
            return
        if self._first is not None and self._layout is not None:
            first = _address(next(iter(self.reconstruction.points3D.values())).xyz)
            if self._first != first - self._layout.node[2]:
                raise FormatError("the points of the reconstruction changed while they were refined")
            write_nodes(self._first, self._layout.node, self._rows, before.ids, xyz)
            return
        points = self.reconstruction.points3D
        for identifier, place in zip(before.ids.tolist(), xyz, strict=True):
            points[identifier].xyz = place


def _observations(images: list[Any], ids: np.ndarray, where: Layout | None) -> Observations:
    """All keypoints that name a point; ids ascend."""
    lists = [image.points2D for image in images]
    counts = np.array([len(each) for each in lists], np.int64)
    if where is not None:
        addresses = np.array([_address(each[0].xy) if len(each) else 0 for each in lists], np.int64)
        seen = np.array([int(image.num_points3D) for image in images], np.int64)
        image_row, point_row, pixel, start, track_length, lost = kernels.read_keypoints(
            addresses, counts, where.stride, where.point_id, ids, seen
        )
        if lost != NO_POINT:
            raise FormatError(_LOST.format(lost))
        return Observations(image_row, point_row, pixel, np.diff(start), track_length)
    found = list(_one_by_one(lists))
    image_row = np.array([row[0] for row in found], np.int64)
    point_row = _rows_of(ids, np.array([row[1] for row in found], np.int64))
    pixel = np.array([row[2] for row in found], float).reshape(-1, 2)
    return Observations.counted(image_row, point_row, pixel, len(lists), len(ids))


def _one_by_one(lists: list[Any]) -> Iterator[tuple[int, int, np.ndarray]]:
    for row, each in enumerate(lists):
        for keypoint in each:
            if keypoint.has_point3D():
                yield row, int(keypoint.point3D_id), np.array(keypoint.xy)


def _rows_of(ids: np.ndarray, named: np.ndarray) -> np.ndarray:
    """Rows of ascending ids; FormatError for one that is missing."""
    rows = np.minimum(np.searchsorted(ids, named), max(len(ids) - 1, 0))
    is_missing = ids[rows] != named if len(ids) else np.ones(len(named), bool)
    if is_missing.any():
        raise FormatError(_LOST.format(int(named[is_missing.argmax()])))
    return rows


def _pose(rigid: Any) -> np.ndarray:
    """(7,) w x y z, t of a `pycolmap.Rigid3d`."""
    x, y, z, w = rigid.rotation.quat
    return np.array([w, x, y, z, *rigid.translation])


def _rigid(pose: np.ndarray) -> Any:
    import pycolmap

    return pycolmap.Rigid3d(pycolmap.Rotation3d(pose[[1, 2, 3, 0]]), pose[4:])


def _put_sensor(rig: Any, sensor: ColmapSensor) -> None:
    import pycolmap

    name = pycolmap.sensor_t(pycolmap.SensorType.CAMERA, sensor.id)
    rig.set_sensor_from_rig(name, _rigid(sensor.pose))  # type: ignore[arg-type]


def _cameras(reconstruction: Any) -> list[ColmapCamera]:
    cameras = sorted((int(id_), camera) for id_, camera in reconstruction.cameras.items())
    return [
        ColmapCamera(id_, camera.model.name, int(camera.width), int(camera.height), np.array(camera.params))
        for id_, camera in cameras
    ]


def _images(images: list[tuple[int, Any]]) -> ColmapImages:
    """Without keypoints, and without poses, which frames have."""
    count = len(images)
    return ColmapImages(
        ids=np.array([id_ for id_, _ in images], np.int64),
        quaternion=np.tile([1.0, 0.0, 0.0, 0.0], (count, 1)),
        translation=np.zeros((count, 3)),
        camera_ids=np.array([int(image.camera_id) for _, image in images], np.int64),
        names=[image.name for _, image in images],
        keypoint_start=np.zeros(count + 1, np.int64),
        xy=np.empty((0, 2)),
        point_ids=np.empty(0, np.int64),
    )


def _sensor(name: Any, pose: Any) -> ColmapSensor:
    kind = _NUMBERS.get(name.type.name, -1)
    return ColmapSensor(kind, int(name.id), None if pose is None else _pose(pose))


def _rigs(reconstruction: Any) -> list[ColmapRig]:
    found = []
    for id_, rig in sorted((int(id_), rig) for id_, rig in reconstruction.rigs.items()):
        others = sorted(rig.non_ref_sensors.items(), key=lambda item: (item[0].type.name, int(item[0].id)))
        sensors = [_sensor(rig.ref_sensor_id, None), *(_sensor(name, pose) for name, pose in others)]
        found.append(ColmapRig(id_, sensors))
    return found


def _frames(reconstruction: Any, images: list[tuple[int, Any]]) -> ColmapFrames:
    """Frames of the images, by ascending id."""
    members: dict[int, list[list[int]]] = {}
    for id_, image in images:
        members.setdefault(int(image.frame_id), []).append([CAMERA, int(image.camera_id), id_])
    ids = sorted(members)
    frames = [reconstruction.frame(id_) for id_ in ids]
    return ColmapFrames(
        np.array(ids, np.int64),
        np.array([int(frame.rig_id) for frame in frames], np.int64),
        np.array([_pose(frame.rig_from_world) for frame in frames], float).reshape(-1, 7),
        [np.array(members[id_], np.int64) for id_ in ids],
    )
