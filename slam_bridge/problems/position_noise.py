"""What noise of the poses does to the scale that an IMU gives a map.

    e = s R' (p_j - p_i) - ...      p: positions with noise, sigma; s and all else by least squares

The noise is in what s multiplies, so least squares finds s too small (regression dilution), the more the
shorter the intervals are beside the noise: E[log s] = -rho, rho = sigma^2 tr(B' P B) / I. P takes the other
unknowns out of the weights, B = d e / d p, and I is the information of log(s). sigma^2 and k, by which the
IMU's noise exceeds its data sheet, are variance components,

    [ redundancy    tr(B'PB)  ] [    k    ]   [ e'P e            ]
    [ tr(B'PB)      |B'PB|^2  ] [ sigma^2 ] = [ |B'P e|^2        ]

References: Fuller, Measurement Error Models, Wiley 1987, chapter 1; Rao, Estimation of variance and
covariance components: MINQUE theory, J. Multivariate Analysis 1 (1971).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg

import graphopt
from graphopt.geometry import SO3

MOST = 0.9
"""rho from which nothing but noise is left: the deviation of the logarithm is rho itself, and above."""


class Dilution(NamedTuple):
    """Of a scale by noise of positions."""

    rho: float
    """By how much the logarithm of the scale is too small."""
    variance: float
    """Of the logarithm, by both components; the terms of rho that are left out counted in."""


def dilution_of(graph: graphopt.Graph, edges: str, scale: int, poses: np.ndarray) -> Dilution | None:
    """At the minimum of a graph whose poses (n, 7) are held; None where positions show no noise.

    edges: tag of the n - 1 edges between poses, whose last three rows are positions. scale: its vertex.
    """
    found = graphopt.linearize(graph)
    first, count = next(each.first for each in found.edges if each.edge_set.type.tag == edges), len(poses) - 1
    column = found.columns(scale).start
    J: Any = sp.csc_matrix(found.J)
    W: Any = sp.csc_matrix(found.W)
    others = np.delete(np.arange(J.shape[1]), column)
    A, of_scale = J[:, others], J[:, [column]].toarray()[:, 0]
    solve = scipy.sparse.linalg.splu(sp.csc_matrix(A.T @ W @ A)).solve

    def project(x: np.ndarray) -> np.ndarray:
        weighted = W @ x
        return weighted - W @ (A @ solve(A.T @ weighted))

    B = _by_positions(graph, scale, poses, first, len(found.residuals)).toarray()
    PB, Pe, Ps = project(B), project(found.residuals), project(of_scale)
    G = B.T @ PB
    mixed, information = float(np.trace(G)), float(of_scale @ Ps)
    redundancy = len(found.residuals) - J.shape[1]
    squares = float(found.residuals @ Pe), float(np.sum((B.T @ Pe) ** 2))
    try:
        k, noise = np.linalg.solve([[redundancy, mixed], [mixed, float(np.sum(G * G))]], squares)
    except np.linalg.LinAlgError:
        return None
    if not (np.isfinite(noise) and noise > 0.0 and k > 0.0 and information > 0.0 and count > 2):
        return None
    rho = float(noise * mixed / information)
    left_out = np.log1p(-rho) + rho if rho < MOST else rho
    of_noise = noise * float(np.sum((B.T @ Ps) ** 2)) / information**2
    return Dilution(rho, float(k / information + of_noise + left_out**2))


def _by_positions(
    graph: graphopt.Graph, scale: int, poses: np.ndarray, first: int, num_rows: int
) -> sp.csr_matrix:
    """d e / d p, (num_rows, 3 n): +- s R' in the last three of each edge's nine rows."""
    count = len(poses) - 1
    turned = float(graph.vertex(scale).estimate[0]) * np.asarray(SO3(poses[:-1, 3:]).to_matrix())
    blocks = turned.transpose(0, 2, 1)
    i, row, axis = np.meshgrid(np.arange(count), np.arange(3), np.arange(3), indexing="ij")
    rows = first + 9 * i + 6 + row
    entries = [(-blocks, 3 * i + axis), (blocks, 3 * i + 3 + axis)]
    data = np.concatenate([values.ravel() for values, _ in entries])
    columns = np.concatenate([places.ravel() for _, places in entries])
    places = np.tile(rows.ravel(), 2), columns
    return sp.csr_matrix((data, places), shape=(num_rows, 3 * len(poses)))
