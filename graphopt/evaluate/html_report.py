"""The report of an evaluation: `report.html`, one page without outside references, and its pictures as PNG.

Everything is made from `results.json` alone, so a report can be made again at any time.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable
from pathlib import Path

from graphopt.evaluate import pictures
from graphopt.evaluate.report import figure
from graphopt.evaluate.results import FILE, Results, load, plain
from graphopt.evaluate.tables import accuracy, columns
from graphopt.io.files import write_bytes

PAGE = "report.html"
ACCURACY = "accuracy.md"
"""Of sequences: the table that documents show."""

_TITLES = {
    "bal": "Bundle adjustment in the large",
    "colmap": "COLMAP models",
    "pose-graph": "Pose graphs",
    "trajectory": "Trajectories",
    "vib": "Visual-inertial problems",
    "euroc": "EuRoC MAV",
    "tumvi": "TUM VI",
    "kitti": "KITTI",
}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2a36; max-width: 96vw; margin: 2em auto; }
table { border-collapse: collapse; margin: 1em 0; display: block; overflow-x: auto; }
th, td { padding: .25em .8em; border-bottom: 1px solid #e3e8ee; text-align: left; white-space: nowrap; }
td.number, th.number { text-align: right; }
tr.failed td { color: #b3261e; white-space: normal; }
img { max-width: 100%; } figure { margin: 1.5em 0; } figcaption { color: #5b6b7a; }
code, pre { background: #f4f6f8; padding: .1em .3em; border-radius: 3px; } pre { padding: .8em; overflow-x:
auto; } h1 { margin-bottom: 0; } .facts td { border: 0; padding: .1em .8em .1em 0; white-space: normal; }
"""


def write(folder: Path) -> list[Path]:
    """Write the page and the pictures of the results in `folder`; returns the files, the page first.

    Without matplotlib the page has no pictures, and says so.
    """
    results = load(folder)
    missing = figure.missing_matplotlib()
    drawn = pictures.draw(results, folder) if missing is None else []
    write_bytes(folder / PAGE, _page(results, drawn, missing).encode(errors="replace"))
    written = [folder / PAGE, folder / FILE, *(path for path, _ in drawn)]
    if results.kind in ("euroc", "tumvi", "kitti"):
        write_bytes(folder / ACCURACY, accuracy(results).encode())
        written.insert(2, folder / ACCURACY)
    return written


def _page(results: Results, drawn: list[tuple[Path, str]], missing: str | None) -> str:
    """missing: why there are no pictures."""
    title = _TITLES.get(results.kind, results.kind)
    parts = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(_version_and_date(results))}</p>",
        "<h2>Results</h2>",
        _table(results),
        *([] if missing is None else [f"<p>{html.escape(missing)}</p>"]),
        *(_figure(path, caption) for path, caption in drawn),
        "<h2>How it was measured</h2>",
        _machine(results),
        f"<p>To measure again:</p><pre>{html.escape(results.command)}</pre>",
        "<details><summary>All numbers</summary><pre>",
        html.escape(json.dumps(plain(results.entries), indent=1)),
        "</pre></details>",
    ]
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
    return f"{head}<style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"


def _version_and_date(results: Results) -> str:
    return f"graphopt {results.machine.get('graphopt', '')}, {results.started}"


def _table(results: Results) -> str:
    shown = columns(results)
    head = "".join(_cell("th", column.title, column.is_number) for column in shown)
    body = []
    for key, entry in results.entries.items():
        if "error" in entry:
            sentence = html.escape(f"{key}: {entry['error']}")
            body.append(f'<tr class="failed"><td colspan="{max(len(shown), 1)}">{sentence}</td></tr>')
        else:
            body.append(
                "<tr>"
                + "".join(_cell("td", column.text(entry), column.is_number) for column in shown)
                + "</tr>"
            )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _cell(tag: str, text: str, is_number: bool) -> str:
    kind = ' class="number"' if is_number else ""
    return f"<{tag}{kind}>{html.escape(text)}</{tag}>"


def _figure(path: Path, caption: str) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )


def _machine(results: Results) -> str:
    machine = results.machine
    facts: Iterable[tuple[str, str]] = [
        ("system", str(machine.get("system", ""))),
        ("memory", f"{(machine.get('memory_bytes') or 0) / 2**30:.1f} GiB"),
        *(
            (device["device"], f"{device['name']}: {device['detail']}")
            for device in machine.get("devices", [])
        ),
        ("python", str(machine.get("python", ""))),
        *((name, version) for name, version in machine.get("packages", {}).items()),
        *((f"option {name}", str(value)) for name, value in results.options.items()),
    ]
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td><td>{html.escape(text)}</td></tr>" for name, text in facts
    )
    return f'<table class="facts">{rows}</table>'
