"""The bytecode: what the CPU interpreter (native/src/vm), the reference interpreter and GPU backends execute.

A program works on *lanes*: all edges of a chunk run the same instruction together. Its registers hold one
float64 per lane: first the constants, then everything else. Inputs are loaded into their registers before the
first instruction; outputs are read from theirs after the last. Code is a stream of 16-bit words:

    opcode, destination registers ..., source registers ...

in the order of `INSTRUCTIONS`. SUM and BLOCK have a variable length:

    SUM, d, np, nn, xp, xn, (a, b) * np, (a, b) * nn, x * xp, x * xn

means d = sum of the np products, minus the sum of nn products, plus xp terms, minus xn terms, accumulated in
this order except that the first of the xp terms, where there is one, starts the sum. Products are fused into
multiply-adds where the processor can.

    BLOCK, m, n, np, nn, d * (m n), a * m (np + nn), b * n (np + nn)

means d[i, j] = the sum of a[i, r] b[j, r] over the first np, minus that over the last nn of r, all with the
last index running fastest; m and n are 1 to 3.

    SAMPLE, value, by_u, by_v, plane, u, v          SAMPLE_CUBIC likewise

is an image's value and derivatives at column u and row v; `plane` holds the number of a plane of pixels, per
lane. `symbolic.sampling` says what it means.

An opcode is its index in `INSTRUCTIONS`; native/src/vm/opcodes.h repeats the list and a test compares the
two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from graphopt.errors import SymbolicError
from graphopt.symbolic import sampling
from graphopt.symbolic.ops import OPS

WORD_LIMIT = 65535


@dataclass(frozen=True)
class InstructionKind:
    """Shape and meaning of one opcode."""

    name: str
    num_destinations: int
    """-1: variable (BLOCK)."""
    num_sources: int
    """-1: variable (SUM, BLOCK)."""
    evaluate: Callable | None
    """arrays of the sources -> array (a tuple for two destinations); None where the interpreter does it."""


def _plain(op: str) -> InstructionKind:
    return InstructionKind(op.upper(), 1, OPS[op].arity, OPS[op].evaluate)


INSTRUCTIONS: tuple[InstructionKind, ...] = (
    InstructionKind("END", 0, 0, None),
    _plain("add"),
    _plain("sub"),
    _plain("mul"),
    _plain("neg"),
    InstructionKind("FMA", 1, 3, lambda a, b, c: a * b + c),
    InstructionKind("FMS", 1, 3, lambda a, b, c: a * b - c),
    InstructionKind("FNMA", 1, 3, lambda a, b, c: c - a * b),
    InstructionKind("DOT2", 1, 4, lambda a, b, c, d: a * b + c * d),
    InstructionKind("DOT3", 1, 6, lambda a, b, c, d, e, f: a * b + c * d + e * f),
    InstructionKind("SUM", 1, -1, None),
    InstructionKind("BLOCK", -1, -1, None),
    _plain("recip"),
    _plain("sqrt"),
    _plain("sin"),
    _plain("cos"),
    InstructionKind("SINCOS", 2, 1, lambda x: (np.sin(x), np.cos(x))),
    _plain("tan"),
    _plain("asin"),
    _plain("acos"),
    _plain("atan"),
    _plain("atan2"),
    _plain("exp"),
    _plain("log"),
    _plain("pow"),
    _plain("abs"),
    _plain("sign"),
    _plain("floor"),
    _plain("min"),
    _plain("max"),
    _plain("lt"),
    _plain("le"),
    _plain("eq"),
    _plain("and"),
    _plain("or"),
    _plain("not"),
    _plain("select"),
    InstructionKind("ROBUST", 2, 1, None),
    InstructionKind("SAMPLE", 3, 3, sampling.bilinear),
    InstructionKind("SAMPLE_CUBIC", 3, 3, sampling.bicubic),
)
_FLOPS = {"FMA": 2, "FMS": 2, "FNMA": 2, "DOT2": 3, "DOT3": 5, "SAMPLE": 13, "SAMPLE_CUBIC": 120}
OPCODE: dict[str, int] = {kind.name: code for code, kind in enumerate(INSTRUCTIONS)}


class Instruction(NamedTuple):
    """One decoded instruction. Before register allocation the numbers are value ids, after it registers."""

    name: str
    destinations: tuple[int, ...]
    sources: tuple[int, ...]
    counts: tuple[int, int, int, int] | None = None
    """SUM: numbers of added and subtracted products, added and subtracted terms. BLOCK: rows, columns,
    numbers of added and subtracted products."""

    @property
    def num_flops(self) -> int:
        """Arithmetic operations; a multiply-add counts 2."""
        if self.name == "BLOCK":
            assert self.counts is not None
            rows, columns, pos, neg = self.counts
            return rows * columns * (2 * (pos + neg) - 1)
        if self.counts is not None:
            pos, neg, plus, minus = self.counts
            return 2 * (pos + neg) + plus + minus - 1
        return _FLOPS.get(self.name, 1)

    @property
    def num_operations(self) -> int:
        """What a processor issues: a multiply-add is one, and so is a function or a choice."""
        if self.name == "BLOCK":
            assert self.counts is not None
            return self.counts[0] * self.counts[1] * (self.counts[2] + self.counts[3])
        if self.counts is not None:
            pos, neg, plus, minus = self.counts
            return pos + neg + plus + minus - (plus > 0)
        return {"DOT2": 2, "DOT3": 3}.get(self.name, 1)


def encode(instructions: list[Instruction]) -> np.ndarray:
    """Words of a program, END included."""
    words: list[int] = []
    for name, destinations, sources, counts in instructions:
        words.append(OPCODE[name])
        if name == "BLOCK":
            words += counts or ()
            words += destinations
        else:
            words += destinations
            words += counts or ()
        words += sources
    words.append(OPCODE["END"])
    if max(words) > WORD_LIMIT:
        raise SymbolicError(
            f"The compiled function needs {max(words)} registers, the bytecode has {WORD_LIMIT}. "
            "Split the edge type."
        )
    return np.array(words, dtype=np.uint16)


def decode(code: np.ndarray) -> Iterator[Instruction]:
    """Instructions of a program, without END."""
    words = code.tolist()
    at = 0
    while words[at] != OPCODE["END"]:
        kind = INSTRUCTIONS[words[at]]
        at += 1
        counts, num_destinations, num_sources = None, kind.num_destinations, kind.num_sources
        if kind.name == "BLOCK":
            counts = (words[at], words[at + 1], words[at + 2], words[at + 3])
            num_destinations = counts[0] * counts[1]
            num_sources = (counts[0] + counts[1]) * (counts[2] + counts[3])
            at += 4
        destinations = tuple(words[at : at + num_destinations])
        at += num_destinations
        if kind.name == "SUM":
            counts = (words[at], words[at + 1], words[at + 2], words[at + 3])
            num_sources = 2 * (counts[0] + counts[1]) + counts[2] + counts[3]
            at += 4
        yield Instruction(kind.name, destinations, tuple(words[at : at + num_sources]), counts)
        at += num_sources


def disassemble(code: np.ndarray) -> str:
    """One line of text per instruction."""
    lines = []
    for i in decode(code):
        left = ", ".join(f"r{d}" for d in i.destinations)
        counts = f" {list(i.counts)}" if i.counts is not None else ""
        lines.append(f"{left} = {i.name}{counts} {', '.join(f'r{s}' for s in i.sources)}")
    return "\n".join(lines)


def interpret(code: np.ndarray, registers: list[np.ndarray], robust: Callable | None = None) -> None:
    """Run a program slowly on numpy arrays, in place: the definition of what the bytecode means.

    `registers` holds constants and inputs; `robust(chi2) -> (rho, weight)` stands for the robust kernel.
    """
    with np.errstate(all="ignore"):
        for i in decode(code):
            values = [registers[s] for s in i.sources]
            kind = INSTRUCTIONS[OPCODE[i.name]]
            if i.name == "BLOCK":
                assert i.counts is not None
                results = _block(i.counts, values)
            elif i.counts is not None:
                results = (_sum(i.counts, values),)
            elif i.name == "ROBUST":
                results = robust(values[0]) if robust else (values[0], np.ones_like(values[0]))
            else:
                assert kind.evaluate is not None
                results = kind.evaluate(*values)
                results = results if kind.num_destinations > 1 else (results,)
            for destination, result in zip(i.destinations, results, strict=True):
                registers[destination] = result


def _sum(counts: tuple[int, int, int, int], values: list[np.ndarray]) -> np.ndarray:
    num_pos, num_neg, num_plus, _ = counts
    products = [values[2 * k] * values[2 * k + 1] for k in range(num_pos + num_neg)]
    terms = values[2 * (num_pos + num_neg) :]
    total = np.zeros(1)
    for k, product in enumerate(products):
        total = total + product if k < num_pos else total - product
    for k, term in enumerate(terms):
        total = total + term if k < num_plus else total - term
    return total


def _block(counts: tuple[int, int, int, int], values: list[np.ndarray]) -> tuple[np.ndarray, ...]:
    num_rows, num_columns, num_pos, num_neg = counts
    length = num_pos + num_neg
    sides = [values[k * length : (k + 1) * length] for k in range(num_rows + num_columns)]
    results = []
    for row in sides[:num_rows]:
        for column in sides[num_rows:]:
            pairs = [v for pair in zip(row, column, strict=True) for v in pair]
            results.append(_sum((num_pos, num_neg, 0, 0), pairs))
    return tuple(results)
