"""The graph of a row: of a public data set, or made by a function of `graphopt.evaluate.datasets`."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.errors import OptionError
from graphopt.evaluate.datasets.published_sizes import SIZES
from graphopt.graph import Graph

Source = dict[str, Any]
"""{"dataset": name}, {"file": path}, or {"make": function, ...} with the function's options."""


def with_file(source: Source) -> Source:
    """The source with the path of its file, fetched if there is none on this machine yet.

    Raises `DownloadError` or `OptionError` with the command that fetches it.
    """
    if "dataset" not in source:
        return source
    from graphopt.evaluate.datasets.fetch import fetch
    from graphopt.evaluate.datasets.registry import find, missing_message

    dataset = find(source["dataset"])
    try:
        return {"file": str(fetch(dataset))}
    except OptionError as error:
        raise OptionError(f"{error}\n{missing_message(dataset)}") from None


def graph_of(source: Source) -> Graph:
    """The graph at its start values; `FormatError` where its file is damaged."""
    from graphopt.evaluate import datasets
    from graphopt.evaluate.pose_graphs import start_values

    if "file" in source:
        return start_values(source["file"])
    options = dict(source)
    return getattr(datasets, options.pop("make"))(**options)


def num_edges(stated: int | None, source: Source) -> int:
    """About how many edges the graph will have, as far as known without it; else 0."""
    if source.get("make") == "published":
        return SIZES[source["size"]][2]
    return stated or source.get("observations", source.get("nodes", 0))


def facts(graph: Graph) -> dict[str, Any]:
    """What tells that two graphs are the same: sizes, and chi2 of the start values."""
    return {
        "vertices": graph.num_vertices,
        "edges": graph.num_edges,
        "initial_chi2": float(graph.chi2(robust=False)),
    }


def with_other_ids(graph: Graph, seed: int) -> Graph:
    """The same problem with other vertex ids, and the edges of each set in another order."""
    rng, other = np.random.default_rng(seed), Graph()
    order = np.sort(np.concatenate([vertices.ids for vertices in graph.vertex_sets]))
    new_ids = 2 * rng.permutation(len(order)) + 1
    for vertices in graph.vertex_sets:
        rows = rng.permutation(len(vertices))
        ids = new_ids[np.searchsorted(order, vertices.ids[rows])]
        flags = {"fixed": vertices.fixed[rows], "marginalized": vertices.marginalized[rows]}
        other.add_vertices(vertices.type, ids, vertices.estimate[rows], **flags)
    for parameters in graph.parameter_sets:
        other.add_parameters(parameters.type, parameters.ids, parameters.values)
    for edges in graph.edge_sets:
        rows = rng.permutation(len(edges))
        other.add_edges(
            edges.type,
            new_ids[np.searchsorted(order, edges.vertices[rows])],
            edges.measurement[rows],
            edges.information[rows],
            kernel=edges.kernel[rows],
            kernel_width=edges.kernel_width[rows],
            level=edges.level[rows],
            parameters=edges.parameters[rows] if edges.parameters.shape[1] else None,
        )
    return other
