"""Which CPU module is loaded, and what is said where none can be."""

import importlib

import pytest

from graphopt import cpu_kernels
from graphopt.errors import OptionError


def failing(error):
    """An import that fails."""

    def import_module(name):
        raise error

    return import_module


def test_a_library_that_is_missing_is_named(monkeypatch):
    """Not the linker's words alone: which module, why, and what to do."""
    error = ImportError("libmetis.so.5: cannot open shared object file: No such file or directory")
    monkeypatch.setattr(importlib, "import_module", failing(error))
    with pytest.raises(ImportError, match=r"_cpu_\w+ cannot be loaded: libmetis.so.5.*pip install") as raised:
        cpu_kernels.load_kernels()
    assert raised.value.__cause__ is error


def test_no_module_at_all(monkeypatch):
    """A source tree that was not built."""
    monkeypatch.setattr(
        importlib,
        "import_module",
        lambda name: failing(ModuleNotFoundError(f"No module named {name!r}", name=name))(name),
    )
    with pytest.raises(ImportError, match=r"no CPU module for this processor.*tools/dev_build.sh"):
        cpu_kernels.load_kernels()


def test_what_a_module_itself_misses_is_not_hidden(monkeypatch):
    """A module that imports something else which is not there."""
    monkeypatch.setattr(importlib, "import_module", failing(ModuleNotFoundError("No numpy", name="numpy")))
    with pytest.raises(ModuleNotFoundError, match="No numpy"):
        cpu_kernels.load_kernels()


def test_an_unknown_instruction_set_is_refused(monkeypatch):
    """GRAPHOPT_ISA names one of three."""
    monkeypatch.setenv("GRAPHOPT_ISA", "v5")
    with pytest.raises(OptionError, match="GRAPHOPT_ISA is 'v5', expected one of v4, v3, baseline"):
        cpu_kernels.load_kernels()


@pytest.mark.parametrize("asked", ["abc", "0", "-3", "1.5", " 2", "2x"])
def test_threads_that_are_no_number(monkeypatch, asked):
    """GRAPHOPT_NUM_THREADS is a whole number of at least 1."""
    monkeypatch.setenv("GRAPHOPT_NUM_THREADS", asked)
    with pytest.raises(OptionError, match=f"GRAPHOPT_NUM_THREADS is '{asked}', expected a whole number"):
        cpu_kernels.load_kernels()


@pytest.mark.parametrize("asked", ["", "2"])
def test_numbers_of_threads(monkeypatch, asked):
    """A number, or nothing, which is as if it was not set."""
    monkeypatch.setenv("GRAPHOPT_NUM_THREADS", asked)
    cpu_kernels.load_kernels()
