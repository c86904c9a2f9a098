"""Archives (.npz): damaged ones, and maps as older versions wrote them."""

import numpy as np


def damage(path, name, change):
    """Write an archive again with one of its arrays changed by a function; None: without it."""
    with np.load(path) as archive:
        arrays = dict(archive)
    array = arrays.pop(name)
    if change is not None:
        arrays[name] = change(array)
    np.savez(path, **arrays)


def write_old_map(world, path):
    """A map of slam_bridge as an archive, without what came later."""
    from slam_bridge.map_file import FORMAT, VERSION, map_arrays

    arrays = {name: value for name, value in map_arrays(world).items() if not name.startswith("features/")}
    np.savez(path, **{"format": FORMAT, "version": VERSION, **arrays})
