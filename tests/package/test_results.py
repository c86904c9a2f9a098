"""docs/results.md and the tables of the first pages are what the command makes of the stated numbers."""

import json

import pytest
import results

from graphopt.reproduce import graphs, measure, page, stated


@pytest.fixture(scope="module")
def numbers():
    """The stated numbers."""
    return stated.load()


def test_pages_are_up_to_date(numbers):
    """After a change of the JSON: `python tools/results.py`."""
    assert results.PAGE.read_text(encoding="utf-8") == page.page(numbers)
    for path in results.FIRST_PAGES:
        text = path.read_text(encoding="utf-8")
        assert text == results.with_table(text, page.first_page_table(numbers))


def test_every_number_names_its_call_and_source(numbers):
    """Calls are known kinds, sources are listed, tables name machine and commit, names are of one row."""
    for table in numbers.tables.values():
        assert table["machine"] and table["commit"] and table["rows"]
        assert len(numbers.rows(table["name"])) == len(table["rows"])
        for row in table["rows"]:
            assert row["seconds"].keys() <= page.CALLS.keys() and (row["seconds"] or row["chi2"])
            assert all(peer["source"] in numbers.sources for peer in row["peers"])


def test_every_row_can_be_measured_again(numbers):
    """Rows name a function, and a data set or a generator; solvers of the same run how they are installed."""
    from graphopt.evaluate import datasets
    from graphopt.evaluate.datasets.registry import find

    for table in numbers.tables.values():
        assert table["function"] in measure.FUNCTIONS and table["device"] in ("cpu", "vulkan")
        for row in table["rows"]:
            graph = row["run"].get("graph", {})
            assert graph.get("make", "ba") in datasets.__all__
            assert find(graph.get("dataset", "intel"))
            assert row.get("relative_to", row["name"]) in numbers.rows(table["name"])
            for peer in row["peers"]:
                assert (peer["source"] == "same run") == ("run" in peer and bool(peer["install"]))


def test_measured_tables_take_the_place_of_stated_ones(numbers):
    """With machine and commit; not where a row is missing."""
    document = json.loads(stated.FILE.read_text("utf-8"))
    name = "pose-graphs"
    head = {"date": "today", "commit": "abc", "machine": "mine"}
    rows = [{**row, "seconds": {"fresh": 2.0}, "peers": []} for row in numbers.tables[name]["rows"]]
    table = {**numbers.tables[name], **head, "rows": rows}
    taken = {each["name"]: each for each in results.taken(document, {"tables": [table]})["tables"]}
    assert taken["gpu"] == numbers.tables["gpu"] and taken[name]["machine"] == "mine"
    assert taken[name]["rows"][0]["seconds"] == {"fresh": 2.0} and taken[name]["rows"][0]["run"]
    with pytest.raises(SystemExit, match="intel not measured"):
        results.taken(document, {"tables": [{**table, "rows": rows[:-1]}]})


def test_published_sizes_are_known_before_the_graph_is_made():
    """The memory that a row needs is looked at first."""
    assert graphs.num_edges(None, {"make": "published", "size": "final-13682"}) == 28987644
    assert graphs.num_edges(None, {"make": "manhattan", "nodes": 10}) == 10
    assert graphs.num_edges(7, {"dataset": "intel"}) == 7
