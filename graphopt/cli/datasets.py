"""`graphopt datasets`: which public data sets there are, where they are here, and how to get them."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from graphopt.cli import arguments, output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.description = "Public data sets by name. $GRAPHOPT_DATA names folders that have copies already."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="all data sets, and where they are on this machine")
    listing.add_argument("collection", nargs="?", help="only of this collection: bal, euroc, tumvi, ...")
    info = actions.add_parser("info", help="licence, citation, address of a data set or collection")
    info.add_argument("name")
    fetch = actions.add_parser("fetch", help="download; an interrupted download goes on where it stopped")
    fetch.add_argument("names", nargs="+", metavar="NAME")
    path = actions.add_parser("path", help="print where a data set is on this machine")
    path.add_argument("name")
    for action in (listing, info):
        arguments.add_json(action)


def run(args: argparse.Namespace) -> int:
    """Run list, info, fetch or path; return 0, or 1 where a download failed."""
    return {"list": _list, "info": _info, "fetch": _fetch, "path": _path}[args.action](args)


def _list(args: argparse.Namespace) -> int:
    from graphopt.evaluate.datasets.registry import collections, datasets, find

    names = {args.collection} if args.collection in collections() else None
    if args.collection and names is None:
        names = {find(args.collection).collection.name}
    chosen = [dataset for dataset in datasets().values() if names is None or dataset.collection.name in names]
    if args.json:
        output.print_json({"datasets": [_facts(dataset) for dataset in chosen]})
        return 0
    rows = [
        (dataset.name, dataset.collection.name, dataset.collection.format, dataset.path() or "")
        for dataset in chosen
    ]
    output.print_table(("name", "collection", "format", "here"), rows)
    return 0


def _info(args: argparse.Namespace) -> int:
    from graphopt.evaluate.datasets.registry import collections, datasets, find

    if args.name in collections():
        collection = collections()[args.name]
        members = [dataset.name for dataset in datasets().values() if dataset.collection == collection]
        facts = {**_collection_facts(collection), "data sets": ", ".join(members)}
    else:
        facts = _facts(find(args.name))
    if args.json:
        output.print_json(facts)
    else:
        output.print_facts([(name, str(value)) for name, value in facts.items() if value])
    return 0


def _fetch(args: argparse.Namespace) -> int:
    from graphopt.evaluate.datasets.fetch import DownloadError, fetch
    from graphopt.evaluate.datasets.registry import find

    chosen = [find(name) for name in args.names]
    failed = 0
    for dataset in chosen:
        try:
            columns = ("{task.description}", "DownloadColumn", "TimeRemainingColumn")
            with output.Bar(*columns, description=dataset.name) as bar:
                print(fetch(dataset, lambda done, total, bar=bar: bar.update(completed=done, total=total)))
        except DownloadError as error:
            print(f"graphopt: {error}", file=sys.stderr)
            failed += 1
    return 1 if failed else 0


def _path(args: argparse.Namespace) -> int:
    from graphopt.evaluate.datasets.registry import find, missing_message

    dataset = find(args.name)
    path = dataset.path()
    if path is None:
        print(f"graphopt: {missing_message(dataset)}", file=sys.stderr)
        return 1
    print(path)
    return 0


def _collection_facts(collection: Any) -> dict[str, Any]:
    fields = ("name", "title", "homepage", "licence", "citation", "format")
    return {name: getattr(collection, name) for name in fields}


def _facts(dataset: Any) -> dict[str, Any]:
    path = dataset.path()
    return {
        **_collection_facts(dataset.collection),
        "name": dataset.name,
        "collection": dataset.collection.name,
        "url": dataset.url,
        "checksum": dataset.verification(),
        "here": str(path) if path else None,
        "fetched to": str(dataset.destination()),
    }
