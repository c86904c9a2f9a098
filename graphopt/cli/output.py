"""What the commands print: tables, JSON, and the progress of an optimization.

Results go to stdout. With `--json` stdout holds one JSON object and everything else goes to stderr.
`rich` is imported when something is drawn with it, not before.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphopt.optimizer.summary import Iteration


def print_json(document: Mapping[str, Any]) -> None:
    """Print one JSON object to stdout. NaN and infinity become null, which JSON has no other word for."""
    print(to_json(document))


def to_json(document: Any) -> str:
    """Return JSON text of `document`."""
    return json.dumps(_finite(document), indent=2, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not float("-inf") < value < float("inf"):
        return None
    return value


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print names and values in two columns to stdout."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        print(f"{name:<{width}}  {value}")


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], numeric: Sequence[str] = ()
) -> None:
    """Print a table to stdout; the columns in `numeric` are aligned to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(str(cell) for cell in row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=max(console.width, 160))
    console.print(table)


def number(value: float | None) -> str:
    """Write a number so that it can be read and compared: six digits, exponent only where it helps."""
    return "-" if value is None else f"{value:.6g}"


def seconds(value: float) -> str:
    """Write a time with a unit that fits."""
    return f"{value:.2f} s" if value >= 1.0 else f"{value * 1e3:.1f} ms"


def phases(times: Mapping[str, float]) -> str:
    """Write a total [s] and the phases that add up to it; what ran beside them stands apart."""
    sides = {name: value for name, value in times.items() if name.startswith("prepare_")}
    parts = {name: value for name, value in times.items() if name != "total" and name not in sides}
    text = f"{seconds(times['total'])}: " + ", ".join(f"{name} {seconds(t)}" for name, t in parts.items())
    if sides.get("prepare_beside", 0.0) > 0.0:
        text += f"; set-up beside linearize {seconds(sides['prepare_beside'])}"
    if sides.get("prepare_wait", 0.0) > 0.0:
        text += f"; of solve, waiting for set-up {seconds(sides['prepare_wait'])}"
    return text


def outcome(document: Mapping[str, Any], more: str = "") -> list[tuple[str, str]]:
    """Rows of a summary: how it was solved, where, in what time, and how it ended."""
    return [
        ("iterations", f"{len(document['iterations'])} ({document['method']}){more}"),
        ("linear solver", f"{document['linear_solver']}, Schur {document['schur']}"),
        ("device", f"{document['device_name']} ({document['precision']})"),
        ("time", phases(document["seconds"])),
        ("termination", f"{document['termination_message']} {document['message']}".strip()),
    ]


class Bar:
    """A bar on a terminal's stderr while its context lasts; nothing elsewhere."""

    def __init__(
        self, *columns: str, total: int | None = None, is_wanted: bool = True, **fields: str
    ) -> None:
        """columns: classes of `rich.progress`, or texts; fields: of these at the start."""
        self._columns, self._total, self._fields = columns, total, fields
        self.is_shown = is_wanted and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Bar:
        if self.is_shown:
            from rich import progress
            from rich.console import Console

            columns = [
                progress.TextColumn(name) if "{" in name else getattr(progress, name)()
                for name in self._columns
            ]
            self._bar = progress.Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(total=self._total, **self._fields)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, **what: Any) -> None:
        """Fields, `completed` and `total`."""
        if self._bar is not None:
            self._bar.update(self._task, **what)


class Progress:
    """Shows the iterations: a bar on a terminal, lines with `-v`, nothing otherwise.

    Used as a context manager; `update` is called after each iteration.
    """

    def __init__(self, *, verbose: bool, as_json: bool, num_iterations: int | None) -> None:
        self._stream = sys.stderr if as_json else sys.stdout
        self._verbose = verbose
        self._bar = Bar(
            "{task.description}", "BarColumn", "{task.fields[chi2]}", "TimeElapsedColumn",
            total=num_iterations, is_wanted=not verbose and not as_json, description="preparing", chi2="",
        )  # fmt: skip

    def __enter__(self) -> Progress:
        if self._verbose:
            print(f"{'iter':>5} {'chi2':>16} {'lambda':>12} {'trials':>6} {'time':>10}", file=self._stream)
        self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.__exit__()

    def update(self, done: Iteration) -> None:
        """Show one finished iteration."""
        if self._verbose:
            damping, elapsed = number(done.lambda_), 1e3 * done.seconds
            line = f"{done.iteration:>5} {done.chi2:>16.8g} {damping:>12} {done.trials:>6} {elapsed:>7.1f} ms"
            print(line, file=self._stream, flush=True)
        number_done = done.iteration + 1
        self._bar.update(
            completed=number_done, description=f"iteration {number_done}", chi2=f"chi2 {done.chi2:.8g}"
        )

    # Estimates stay on the device while numbers are shown.
    update.__dict__["looks_at_graph"] = False
