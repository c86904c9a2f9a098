"""Whether numbers that were measured here are those that were stated.

chi2 has to agree to 1e-6, whatever the device. Seconds depend on the machine, so ratios are compared: of
graphopt to another solver, or to another row of the table, both of one run. A ratio may be 10 % worse.
Numbers of other solvers that were measured in another run are compared with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

CHI2_TOLERANCE = 1e-6
RATIO_TOLERANCE = 0.1
_SAME_DATA = 1e-9  # of chi2 at the start values
SAME_RUN = "same run"
"""Source of other solvers' numbers that were measured beside ours."""


@dataclass(frozen=True)
class Check:
    """One number of a row."""

    table: str
    row: str
    quantity: str
    here: float | None
    stated: float | None
    holds: bool
    result: str
    """What came out, in words."""


def checks(table: dict[str, Any], measured: dict[str, dict[str, Any]]) -> list[Check]:
    """All numbers of the rows of a table that were measured here, by row name, and are stated."""
    found = []
    for row in table["rows"]:
        here = measured.get(row["name"])
        if here is None or "skipped" in here:
            continue
        where = table["name"], row["name"]
        if "error" in here:
            found.append(Check(*where, "run", None, None, False, here["error"]))
            continue
        if (other_data := _data(where, row, here)) is not None:
            found.append(other_data)
            continue
        found += _chi2(where, row, here)
        found += _peers(where, row, here)
        found += _other_rows(where, row, here, table, measured)
    return found


def _data(where: tuple[str, str], row: dict[str, Any], here: dict[str, Any]) -> Check | None:
    """A check that fails where the problem is another one than the stated numbers are of."""
    for name in ("vertices", "edges", "initial_chi2"):
        stated, found = row.get(name), here.get(name)
        if stated is None or found is None:
            continue
        if abs(found - stated) > _SAME_DATA * abs(stated):
            result = "other data than the stated numbers are of: damaged, or another version"
            return Check(*where, name.replace("_", " "), found, stated, False, result)
    return None


def _chi2(where: tuple[str, str], row: dict[str, Any], here: dict[str, Any]) -> list[Check]:
    stated, found = row["chi2"], here.get("chi2")
    if stated is None or found is None:
        return []
    deviation = (found - stated) / max(abs(stated), 1e-300)
    holds = abs(deviation) <= CHI2_TOLERANCE
    result = f"{deviation:+.1e}" + ("" if holds else f", more than {CHI2_TOLERANCE:g}")
    return [Check(*where, "chi2", found, stated, holds, result)]


def _peers(where: tuple[str, str], row: dict[str, Any], here: dict[str, Any]) -> list[Check]:
    """Times of graphopt over those of other solvers that were measured beside it, here and as stated."""
    stated = {peer["solver"]: peer for peer in row["peers"] if peer.get("source") == SAME_RUN}
    found = []
    for peer in here.get("peers", []):
        known = stated.get(peer["solver"])
        if known is None or known["seconds"] is None or peer.get("seconds") is None:
            continue
        for call in row["seconds"].keys() & here["seconds"].keys():
            ratio = here["seconds"][call] / peer["seconds"]
            as_stated = row["seconds"][call] / known["seconds"]
            found.append(_ratio(where, f"time / {peer['solver']}", ratio, as_stated))
    return found


def _other_rows(
    where: tuple[str, str],
    row: dict[str, Any],
    here: dict[str, Any],
    table: dict[str, Any],
    measured: dict[str, dict[str, Any]],
) -> list[Check]:
    """Times over those of the row that `relative_to` names, where both ran on the stated kind of device."""
    name = row.get("relative_to", "")
    base, base_here = (rows.get(name) for rows in ({each["name"]: each for each in table["rows"]}, measured))
    if base is None or base_here is None or "seconds" not in base_here or not here.get("is_stated_device"):
        return []
    calls = [call for call in row["seconds"] if call in here["seconds"] and call in base_here["seconds"]]
    return [
        _ratio(
            where,
            f"{call} / {name}",
            here["seconds"][call] / base_here["seconds"][call],
            row["seconds"][call] / base["seconds"][call],
        )
        for call in calls
        if base["seconds"].get(call)
    ]


def _ratio(where: tuple[str, str], quantity: str, here: float, stated: float) -> Check:
    change = here / stated - 1.0
    holds = change <= RATIO_TOLERANCE
    result = f"{abs(change):.0%} {'slower' if change > 0.0 else 'faster'} than stated"
    if not holds:
        result += f", more than {RATIO_TOLERANCE:.0%}"
    return Check(*where, quantity, here, stated, holds, result)
