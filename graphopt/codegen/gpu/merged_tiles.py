"""What kernels over several edge sets have in common: names of buffers, functions, tiles of the union.

The edges of several views, slots of edge sets, add to the sums of the same vertices. One kernel goes over all
of them and writes every sum once. A tile is a run of whole destinations with at most TILE edges of all views
together, or one destination with more; its edges are those of view 0, then those of view 1, ..., one per
invocation:

    first[d * VIEWS + v]   first edge of destination d in view v, (num_destinations + 1, VIEWS)
    until[v]               edges of the tile before those of view v

The text of a view is that of its own kernel, as a function, with other names of the buffers: estimates,
parameters and packed records of one type are one buffer, whatever the view.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from graphopt.codegen.gpu.inputs import describe_type
from graphopt.codegen.gpu.kernel import Body, Interface, indent
from graphopt.codegen.gpu.layout import EdgeSignature, argument_names

_OF_VERTICES = ("estimate", "float32_estimate", "packed")
_OF_PARAMETERS = ("float32_parameter", "parameter")
_SHARED = ("status", "planes", "pixels")


def merged_name(signatures: Sequence[EdgeSignature], view: int, name: str) -> str:
    """What a buffer of a view's own kernel is called in a kernel over all views.

    Names in the text of edges end in a number, `_row`, `_v` or `_w` and a number: these do not.
    """
    own, edge_types = signatures[view].edge_type, [signature.edge_type for signature in signatures]
    for prefix in _OF_PARAMETERS:
        if match := re.fullmatch(rf"{prefix}(\d+)", name):
            known = _numbers(parameter for kind in edge_types for parameter in kind.parameters)
            return f"parameters{known[_identity(own.parameters[int(match[1])])]}_{prefix}"
    for prefix in _OF_VERTICES:
        if match := re.fullmatch(rf"{prefix}(\d+)", name):
            known = _numbers(vertex for kind in edge_types for vertex in kind.vertices)
            return f"vertices{known[_identity(own.vertices[int(match[1])])]}_{prefix}"
    return name if name in _SHARED else f"edges{view}_{name}"


def _numbers(kinds: Iterable[Any]) -> dict[tuple[str, str], int]:
    """Types in their order, each once."""
    return {kind: number for number, kind in enumerate(dict.fromkeys(map(_identity, kinds)))}


def _identity(kind: Any) -> tuple[str, str]:
    return kind.name, getattr(kind, "tag", "")


class Views:
    """Functions of the views of a merged kernel, and their buffers."""

    def __init__(self, signatures: Sequence[EdgeSignature], interface: Interface):
        """interface: of the merged kernel; gets the buffers of each view."""
        self._signatures = tuple(signatures)
        self._interface = interface
        self._declarations: list[str] = []
        self._bodies: list[Body] = []
        self.header: list[str] = []
        """Lines about the views."""

    def name(self, view: int, own: str) -> str:
        """What a buffer of a view's own kernel is called here."""
        return merged_name(self._signatures, view, own)

    def add(self, slot: int | None, buffers: Mapping[str, str], lines: Sequence[str], body: Body) -> None:
        """The next view: `lines` add the edge `e` of the view of a slot to the invocation's sums.

        slot None: the sums are not those of vertices. buffers: declarations of what the lines read, by the
        names of the view's own kernel.
        """
        view, signature = len(self._bodies), self._signatures[len(self._bodies)]
        names = {name: self.name(view, name) for name in buffers}
        for name, declaration in buffers.items():
            own = _renamed([declaration], {name: names[name]})[0]
            known = self._interface.buffers.get(names[name], own)
            # a buffer that one view writes is not read-only for the others
            self._interface.add(names[name], own if "readonly" not in own else known)
        where = "" if slot is None else f"slot {slot}, {argument_names(signature.edge_type)[slot]}, of"
        self.header += [f"edges {view}: {where}", *(f"  {line}" for line in describe_type(signature))]
        self._declarations += [
            "",
            f"void add_edge{view}(uint e) {{",
            *indent(_renamed(lines, names)),
            "}",
        ]
        self._bodies.append(body)

    @property
    def body(self) -> Body:
        """Operations of an edge of each view together; live values of the view with most."""
        return Body(
            [],
            {},
            sum(each_body.flops for each_body in self._bodies),
            max(each_body.registers for each_body in self._bodies),
            set(),
            any(each_body.samples_images for each_body in self._bodies),
        )

    def functions(self) -> list[str]:
        """add_edge0, add_edge1, ..."""
        return self._declarations

    def choice(self) -> list[str]:
        """The tile, and the function that finds the view of an edge of it."""
        count = len(self._bodies)
        return [
            "",
            f"const uint VIEWS = {count};",
            "uint first_destination, num_here;  // of the tile",
            "uint begins[VIEWS], until[VIEWS + 1];  // first edge of each view in its view, edges before it",
            "",
            "// The tile's edge i.",
            "void add_edge(uint i) {",
            *(
                f"  {'else ' if view else ''}{f'if (i < until[{view + 1}]) ' if view < count - 1 else ''}"
                f"add_edge{view}(begins[{view}] + (i - until[{view}]));"
                for view in range(count)
            ),
            "}",
        ]


def _renamed(lines: Sequence[str], names: Mapping[str, str]) -> list[str]:
    """Text with other names of buffers, which are whole words in it."""
    pattern = re.compile(r"\b(" + "|".join(sorted(names, key=len, reverse=True)) + r")\b")
    return [pattern.sub(lambda match: names[match[0]], line) for line in lines]


TILE_OF_VIEWS = """\
const uint tile = push.first_tile + WORKGROUP;
if (tile >= push.num_tiles) return;
first_destination = tiles.at[tile];
num_here = tiles.at[tile + 1] - first_destination;
until[0] = 0;
[[unroll]] for (uint v = 0; v < VIEWS; ++v) {
  begins[v] = first.at[first_destination * VIEWS + v];
  until[v + 1] = until[v] + (first.at[(first_destination + num_here) * VIEWS + v] - begins[v]);
}""".splitlines()

ADD_EDGES = "for (uint i = LANE; i < until[VIEWS]; i += WORKGROUP_SIZE) add_edge(i);"


def over_lanes(statement: str, start: str, step: str) -> list[str]:
    """Text that runs a statement for the invocations `i` that hold edges of destination `d`, in order."""
    return [
        "[[unroll]] for (uint v = 0; v < VIEWS; ++v) {",
        "  const uint lane = until[v] - begins[v];  // of the view's edge 0, were it here",
        "  const uint last = min(lane + first.at[(d + 1) * VIEWS + v], TILE);",
        f"  for (uint i = lane + first.at[d * VIEWS + v]{start}; i < last; i += {step}) {statement}",
        "}",
    ]
