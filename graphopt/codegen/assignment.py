"""Programs in single assignment form: every value has one name and is written once.

The bytecode reuses registers; text that people and compilers of other languages read should not. Blocks
become one sum per entry, and the robust kernel's program stands in place of its instruction.

    assigned = assign(program, ["camera_0", ...], ["H_0_0", ...])
    assigned.keep({"H_0_0"})                # without what the other outputs need
    assigned.needed_by({"e_0", "e_1"})      # names of the values that these outputs depend on
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from graphopt.codegen.bytecode import Instruction
from graphopt.codegen.program import Program
from graphopt.errors import ShapeError

Source = str | float
"""A value: a name, or a constant."""


class Statement(NamedTuple):
    """One operation; `counts` as in `bytecode.Instruction`, of sums only."""

    operation: str
    """Name of an instruction; not BLOCK, and ROBUST only where `assign` leaves it as a call."""
    targets: tuple[str, ...]
    sources: tuple[Source, ...]
    counts: tuple[int, int, int, int] | None = None

    @property
    def num_flops(self) -> int:
        """Arithmetic operations; a multiply-add counts 2."""
        return Instruction(self.operation, (), (), self.counts).num_flops

    def names(self) -> list[str]:
        """Values that it reads."""
        return [s for s in self.sources if isinstance(s, str)]


@dataclass(frozen=True)
class Assignment:
    """A straight-line function."""

    statements: tuple[Statement, ...]
    outputs: Mapping[str, Source]
    """Output -> the value that it is: its own name, or the name of an input or of another output, or a
    constant."""

    def needed_by(self, outputs: Iterable[str]) -> set[str]:
        """Names of all values that these outputs depend on, inputs and the outputs' own values included."""
        return self.cone(v for v in (self.outputs[name] for name in outputs) if isinstance(v, str))

    def cone(self, names: Iterable[str]) -> set[str]:
        """Return these values and everything that they depend on."""
        needed = set(names)
        for statement in reversed(self.statements):
            if not needed.isdisjoint(statement.targets):
                needed.update(statement.names())
        return needed

    def choices(self) -> set[str]:
        """Values that some `select` chooses between."""
        return {
            name
            for s in self.statements
            if s.operation == "SELECT"
            for name in s.sources[1:]
            if isinstance(name, str)
        }

    def keep(self, outputs: Iterable[str]) -> Assignment:
        """Return the function of these outputs only, without the statements that only others need."""
        outputs = list(outputs)
        needed = self.needed_by(outputs)
        statements = tuple(s for s in self.statements if not needed.isdisjoint(s.targets))
        return replace(self, statements=statements, outputs={k: self.outputs[k] for k in outputs})

    def inputs(self) -> set[str]:
        """Names that are read and not assigned."""
        assigned = {t for s in self.statements for t in s.targets}
        read = {n for s in self.statements for n in s.names()}
        return (read | {v for v in self.outputs.values() if isinstance(v, str)}) - assigned

    @property
    def samples_images(self) -> bool:
        """Whether some statement reads pixels."""
        return any(s.operation in ("SAMPLE", "SAMPLE_CUBIC") for s in self.statements)

    @property
    def num_flops(self) -> int:
        """Arithmetic operations; a multiply-add counts 2, a transcendental function 1."""
        return sum(s.num_flops for s in self.statements)

    @property
    def num_live(self) -> int:
        """Largest number of values that are needed later, over all points; constants not counted."""
        last_use = {name: k for k, s in enumerate(self.statements) for name in s.names()}
        last_use.update({v: -1 for v in self.outputs.values() if isinstance(v, str)})  # never dies
        dies = Counter(last_use.values())
        live = peak = len(self.inputs())
        for k, statement in enumerate(self.statements):
            live += sum([t in last_use for t in statement.targets])
            peak = max(peak, live)
            live -= dies[k]
        return peak


class _Naming:
    """Walks through bytecode and gives every destination a number, later a name."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.count = 0

    def fresh(self) -> str:
        """A name nobody else has; it cannot be one of the caller's, which start with a letter."""
        self.count += 1
        return f"#{self.count}"

    def walk(
        self, program: Program, inputs: Sequence[Source], kernel: Program | Literal["call"] | None, width: str
    ) -> list[Source]:
        """Append a program's statements and return its outputs."""
        registers: dict[int, Source] = {r: float(c) for r, c in enumerate(program.constants)}
        registers.update({int(r): s for r, s in zip(program.input_registers, inputs, strict=True) if r >= 0})
        for instruction in program.instructions:
            sources = tuple([registers[s] for s in instruction.sources])
            results = self._instruction(instruction, sources, kernel, width)
            registers.update(zip(instruction.destinations, results, strict=True))
        return [registers[int(r)] for r in program.output_registers]

    def _instruction(
        self,
        i: Instruction,
        sources: tuple[Source, ...],
        kernel: Program | Literal["call"] | None,
        width: str,
    ) -> Sequence[Source]:
        if i.name == "ROBUST" and kernel == "call":
            targets = (self.fresh(), self.fresh())
            self.statements.append(Statement(i.name, targets, (sources[0], width)))
            return targets
        if i.name == "ROBUST":
            assert kernel != "call"
            return [sources[0], 1.0] if kernel is None else self.walk(kernel, [sources[0], width], None, "")
        if i.name == "BLOCK":
            assert i.counts is not None
            return [self._append("SUM", pairs, counts) for pairs, counts in _block_sums(i.counts, sources)]
        targets = tuple([self.fresh() for _ in i.destinations])
        self.statements.append(Statement(i.name, targets, sources, i.counts))
        return targets

    def _append(self, name: str, sources: tuple[Source, ...], counts: tuple[int, int, int, int]) -> str:
        target = self.fresh()
        self.statements.append(Statement(name, (target,), sources, counts))
        return target


def _block_sums(
    counts: tuple[int, int, int, int], sources: tuple[Source, ...]
) -> Iterable[tuple[tuple[Source, ...], tuple[int, int, int, int]]]:
    num_rows, num_columns, num_pos, num_neg = counts
    length = num_pos + num_neg
    sides = [sources[k * length : (k + 1) * length] for k in range(num_rows + num_columns)]
    for row in sides[:num_rows]:
        for column in sides[num_rows:]:
            pairs = tuple(v for pair in zip(row, column, strict=True) for v in pair)
            yield pairs, (num_pos, num_neg, 0, 0)


def assign(
    program: Program,
    inputs: Sequence[str],
    outputs: Sequence[str],
    kernel: Program | Literal["call"] | None = None,
    width: str = "width",
) -> Assignment:
    """Single assignment form of a program whose inputs and outputs have these names.

    Other values are called t1, t2, ... in the order of the statements. `kernel` is the robust kernel's
    program, `width` the name of its second input; without it rho = chi2 and the weight is 1. "call" leaves a
    statement ROBUST (rho, weight) <- (chi2, width).
    """
    if len(inputs) != program.num_inputs or len(outputs) != program.num_outputs:
        raise ShapeError(
            f"{program.name}: {len(inputs)} names of inputs and {len(outputs)} of outputs, "
            f"expected {program.num_inputs} and {program.num_outputs}."
        )
    naming = _Naming()
    results = naming.walk(program, inputs, kernel, width)
    names: dict[str, str] = {}
    for output, result in zip(outputs, results, strict=True):
        if isinstance(result, str) and result.startswith("#"):
            names.setdefault(result, output)
    for statement in naming.statements:
        for target in statement.targets:
            names.setdefault(target, f"t{1 + len(names)}")

    def renamed(source: Source) -> Source:
        return names.get(source, source) if isinstance(source, str) else source

    statements = tuple(
        [
            s._replace(targets=tuple([names[t] for t in s.targets]), sources=tuple(map(renamed, s.sources)))
            for s in naming.statements
        ]
    )
    return Assignment(statements, {k: renamed(v) for k, v in zip(outputs, results, strict=True)})
