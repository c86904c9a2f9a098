"""Damaged .npz archives."""

import numpy as np


def damage(path, name, change):
    """Write an archive again with one of its arrays changed by a function; None: without it."""
    with np.load(path) as archive:
        arrays = dict(archive)
    array = arrays.pop(name)
    if change is not None:
        arrays[name] = change(array)
    np.savez(path, **arrays)
