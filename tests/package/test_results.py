"""docs/results.md and the tables of the first pages are what the command makes of docs/results.json."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def results():
    """The module benchmarks/results.py."""
    spec = importlib.util.spec_from_file_location("results", ROOT / "benchmarks" / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def document(results):
    """The measured numbers."""
    return json.loads(results.RESULTS.read_text(encoding="utf-8"))


def test_pages_are_up_to_date(results, document):
    """After a change of the JSON: `python benchmarks/results.py`."""
    assert results.PAGE.read_text(encoding="utf-8") == results.page(document)
    for page in results.FIRST_PAGES:
        text = page.read_text(encoding="utf-8")
        assert text == results.with_table(text, results.readme_table(document))


def test_every_number_names_its_call_and_source(results, document):
    """Calls are known kinds, sources are listed, tables name machine, commit and command."""
    for table in document["tables"]:
        assert table["machine"] and table["commit"] and table["command"] and table["rows"]
        for row in table["rows"]:
            assert row["seconds"].keys() <= results.CALLS.keys() and row["seconds"]
            assert all(peer["source"] in document["sources"] for peer in row["peers"])
