"""Solver configurations by name.

The names are those of table 5.3 of Gopinath, "Improving the Performance of Bundle Adjustment for On-Device
SLAM using GPU Resources" (SFU 2023). "(GPU)" is the best Vulkan device, or the one that is named beside it.
"""

from __future__ import annotations

from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any

from graphopt.errors import OptionError
from graphopt.linear.options import SolverOptions

CONFIGURATIONS: dict[str, SolverOptions] = {
    "LLT (CPU)": SolverOptions("cpu", "cholesky", "explicit"),
    "LLT (GPU)": SolverOptions("vulkan", "cholesky", "explicit"),
    "PCG (CPU)": SolverOptions("cpu", "pcg", "explicit"),
    "PCG (GPU)": SolverOptions("vulkan", "pcg", "explicit"),
    "PCG Implicit (CPU)": SolverOptions("cpu", "pcg", "implicit"),
    "PCG Implicit (GPU)": SolverOptions("vulkan", "pcg", "implicit"),
    "PCG Implicit-Hpp (CPU)": SolverOptions("cpu", "pcg", "implicit", preconditioner="jacobi"),
    "PCG Implicit-Hpp (GPU)": SolverOptions("vulkan", "pcg", "implicit", preconditioner="jacobi"),
}


def configured(options: SolverOptions) -> SolverOptions:
    """`options` with what their configuration says; without one as they are.

    Any spelling does that has the name's letters in their order: "pcg-implicit-gpu". `OptionError` for names
    that there are not, and where an option says something else than the configuration.
    """
    name = options.configuration
    if name is None:
        return options
    by_letters = {_letters(known): known for known in CONFIGURATIONS}
    if _letters(name) not in by_letters:
        close = get_close_matches(_letters(name), by_letters, n=1)
        hint = f" Did you mean '{by_letters[close[0]]}'?" if close else ""
        raise OptionError(f"configuration '{name}' is unknown.{hint} Known: {', '.join(CONFIGURATIONS)}.")
    title = by_letters[_letters(name)]
    requested = CONFIGURATIONS[title]
    said: dict[str, Any] = {"configuration": None}
    for field in fields(SolverOptions):
        given, own = getattr(options, field.name), getattr(requested, field.name)
        if own == field.default:
            continue
        if given not in (field.default, own) and not _is_another_gpu(field.name, given, own):
            raise OptionError(
                f"configuration '{title}' has {field.name} '{own}', but {field.name} is '{given}'. "
                "Leave one of them out."
            )
        said[field.name] = own if given == field.default else given
    return replace(options, **said)


def _letters(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _is_another_gpu(field: str, given: str, own: str) -> bool:
    return field == "device" and own == "vulkan" and given.partition(":")[0] not in ("auto", "cpu")
