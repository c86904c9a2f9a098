"""A short run of the fuzzer: every reader answers every input with a graph or a FormatError."""

import importlib.util
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def fuzzer():
    """Return the module tools/fuzz_readers.py."""
    path = Path(__file__).resolve().parents[2] / "tools" / "fuzz_readers.py"
    spec = importlib.util.spec_from_file_location("fuzz_readers", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_seeds_read(fuzzer):
    """Every seed is a file that reads: mutations start from valid ones."""
    seeds = fuzzer.make_seeds()
    parts = {form.removeprefix("colmap:"): data for form, _, data in seeds if form.startswith("colmap:")}
    for form, name, data in seeds:
        if name != "any.txt":  # several formats in one, on purpose
            assert fuzzer.read_once(form, name, data, parts) != "refused", name


def test_mutated_files(fuzzer):
    """4,000 mutated inputs: no crash, no hang, no other error than FormatError; some are still read."""
    outcomes, failures = fuzzer.campaign(4000, seed=2)
    assert failures == []
    assert outcomes["read, written, read"] > 200
    assert outcomes["refused"] > 2000
