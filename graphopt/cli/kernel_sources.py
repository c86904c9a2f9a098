"""`graphopt explain --source`: GLSL of the kernels of a graph's edge types."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt.problem.structure import EdgeGroup, Structure


def sources(structure: Structure, args: argparse.Namespace) -> str:
    """GLSL of the kernels of the edge groups whose tag or name is asked for."""
    from graphopt.codegen import gpu
    from graphopt.errors import OptionError
    from graphopt.types.base import working_edge_type, working_vertex_type

    arithmetic = "mixed" if args.precision == "mixed" else "double"
    groups = [g for g in structure.groups if args.source in ("", g.edge_set.type.tag, g.edge_set.type.name)]
    if not groups:
        known = ", ".join(dict.fromkeys(g.edge_set.type.tag for g in structure.groups))
        raise OptionError(f"{args.input} has no active edges of type '{args.source}'. It has: {known}.")
    kernels: dict[str, str] = {}
    for group in groups:
        edge_type = working_edge_type(group.edge_set.type)
        signature = gpu.EdgeSignature(edge_type, group.information, group.kernel)
        for kernel in _kernels(group, signature, arithmetic):
            kernels[kernel.name] = kernel.source
        for vertex_type in group.edge_set.type.vertices:
            kernel = gpu.oplus_kernel(working_vertex_type(vertex_type), arithmetic)
            kernels[kernel.name] = kernel.source
    for kernel in _merged_kernels(groups, structure, arithmetic):
        kernels[kernel.name] = kernel.source
    return "\n".join(f"// ---- {name}\n{source}" for name, source in kernels.items())


def _kernels(group: EdgeGroup, signature: Any, arithmetic: Any) -> list[Any]:
    from graphopt.codegen import gpu
    from graphopt.codegen.gpu.moved_products import moved_kernel, transposed_product
    from graphopt.codegen.gpu.packed_products import recomputed_product
    from graphopt.codegen.gpu.product_shapes import rows_kernel, tiles_kernel
    from graphopt.codegen.gpu.scattered import scattered_kernels
    from graphopt.codegen.gpu.stored_products import StoredProduct, store_kernel

    arity = len(group.vertex_sets)
    slots = range(arity)
    kernels = [gpu.chi2_kernel(signature, arithmetic)]
    kernels += [gpu.linearize_kernel(signature, slot, arithmetic) for slot in slots]
    kernels += [gpu.pair_kernel(signature, a, b, arithmetic) for a in slots for b in slots if a < b]
    kernels.append(moved_kernel(signature, tuple(slots), arithmetic))
    kernels += scattered_kernels(signature, arithmetic)
    for slot in slots:
        others = tuple(t for t in slots if t != slot)
        if others:
            recomputed = recomputed_product(signature, slot, others, arithmetic)
            kernels += [tiles_kernel(recomputed), rows_kernel(recomputed)]
            stored = StoredProduct(signature, slot, others, others, (False,) * arity, arithmetic)
            kernels.append(store_kernel(signature, slot, others, arithmetic))
            kernels += [tiles_kernel(stored), rows_kernel(stored)]
            product = transposed_product(signature, slot, tuple(slots), slot == 0, arithmetic)
            kernels += [tiles_kernel(product), rows_kernel(product)]
    return kernels


def _merged_kernels(groups: Sequence[EdgeGroup], structure: Structure, arithmetic: Any) -> Iterator[Any]:
    """Kernels over all views of these groups with the same vertices, where there are several."""
    from graphopt.codegen.gpu import EdgeSignature
    from graphopt.codegen.gpu.merged_kernels import merged_linearize_kernel, merged_product_kernel
    from graphopt.codegen.gpu.packed_products import recomputed_product
    from graphopt.types.base import working_edge_type
    from graphopt.vulkan.plan.problem import MAX_VIEWS, mergeable_slots

    views: dict[int, list[Any]] = {}
    for group in groups:
        kind = working_edge_type(group.edge_set.type)
        signature = EdgeSignature(kind, group.information, group.kernel)
        for slot, may in enumerate(mergeable_slots(structure, group)):
            if may:
                views.setdefault(group.vertex_sets[slot], []).append((signature, slot))
    for view in views.values():
        products = [
            recomputed_product(signature, slot, others, arithmetic)
            for signature, slot in view[:MAX_VIEWS]
            if (others := tuple(k for k in range(signature.arity) if k != slot))
        ]
        if len(view) > 1:
            yield merged_linearize_kernel(tuple(view[:MAX_VIEWS]), arithmetic)
        if len(products) > 1:
            yield merged_product_kernel(tuple(products))
