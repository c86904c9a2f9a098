"""A short run of the fuzzer: every reader answers every input with a graph or a FormatError."""

import fuzz_readers as fuzzer


def test_seeds_read():
    """Every seed is a file that reads: mutations start from valid ones."""
    seeds = fuzzer.make_seeds()
    parts = {form.removeprefix("colmap:"): data for form, _, data in seeds if form.startswith("colmap:")}
    for form, name, data in seeds:
        if name != "any.txt":  # several formats in one, on purpose
            assert fuzzer.read_once(form, name, data, parts) != "refused", name


def test_mutated_files():
    """4,000 mutated inputs: no crash, no hang, no other error than FormatError; some are still read."""
    outcomes, failures = fuzzer.campaign(4000, seed=2)
    assert failures == []
    assert outcomes["read, written, read"] > 200
    assert outcomes["refused"] > 2000
