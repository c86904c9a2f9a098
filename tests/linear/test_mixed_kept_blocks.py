"""Schur complement where only some kept blocks see eliminated ones: sizes of the others do not matter."""

import numpy as np
import pytest

from graphopt.linear import BlockPattern, SchurComplement


def system(rng, poses=6, points=15):
    """Poses of 6 with velocities of 3 beside them, points of 3 seen by some poses: pattern, dense H, b."""
    dims = np.array([6, 3] * poses + [3] * points, np.int32)
    kept, offsets = 2 * poses, np.concatenate([[0], np.cumsum(dims)])
    pairs = {(k, k) for k in range(len(dims))}
    pairs |= {(2 * k, 2 * k + 1) for k in range(poses)} | {(2 * k + 1, 2 * k + 2) for k in range(poses - 1)}
    pairs |= {(2 * int(k), kept + p) for p in range(points) for k in rng.choice(poses, 3, replace=False)}
    ordered = sorted(pairs, key=lambda pair: (pair[1], pair[0]))
    h = np.zeros((offsets[-1], offsets[-1]))
    for row, col in ordered:
        block = rng.normal(size=(dims[row], dims[col]))
        h[offsets[row] : offsets[row + 1], offsets[col] : offsets[col + 1]] = block
        h[offsets[col] : offsets[col + 1], offsets[row] : offsets[row + 1]] = block.T
    h = 0.5 * (h + h.T) + 40.0 * np.eye(len(h))
    values = np.concatenate(
        [h[offsets[r] : offsets[r + 1], offsets[c] : offsets[c + 1]].ravel(order="F") for r, c in ordered]
    )
    columns = np.bincount([c for _, c in ordered], minlength=len(dims))
    col_ptr = np.concatenate([[0], np.cumsum(columns)]).astype(np.int64)
    pattern = BlockPattern(dims, col_ptr, np.array([r for r, _ in ordered], np.int32))
    return pattern, kept, values, h, rng.normal(size=len(h))


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
def test_elimination_is_that_of_dense_algebra(mode):
    """Reduced b, back-substitution, and S (its values, or its products) equal numpy's."""
    pattern, kept, values, h, b = system(np.random.default_rng(0))
    schur = SchurComplement(pattern, kept, mode=mode)
    damping = np.linspace(0.1, 1.0, len(b))
    assert schur.form(values, damping, b)
    n, full = schur.kept_dim, h + np.diag(damping)
    inverse = np.linalg.inv(full[n:, n:])
    s = full[:n, :n] - full[:n, n:] @ inverse @ full[n:, :n]
    np.testing.assert_allclose(schur.reduced_b, b[:n] - full[:n, n:] @ inverse @ b[n:], atol=1e-12)
    x = np.random.default_rng(1).normal(size=n)
    np.testing.assert_allclose(schur.multiply(x), s @ x, atol=1e-10)
    kept_x = np.linalg.solve(s, np.asarray(schur.reduced_b))
    np.testing.assert_allclose(schur.back_substitute(kept_x), np.linalg.solve(full, b), atol=1e-12)
