"""Entry point of the `graphopt` command: parse, run one command, turn errors into a sentence and a status."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Sequence

from graphopt import __version__
from graphopt.cli import parsers, streams
from graphopt.error_codes import cause_of, with_code, without_code
from graphopt.errors import GraphOptError, SolverError

SOLVED, FAILED, BAD_INPUT = 0, 1, 2
_NOT_THE_INPUT = (SolverError, MemoryError, ImportError)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 solved, 1 failed or interrupted, 2 bad usage or input."""
    streams.prepare()
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in words
    try:
        args = parsers.parse(words, __version__)
        command = importlib.import_module(f"graphopt.cli.{args.command}")
        status = command.run(args)
        sys.stdout.flush()
        return status
    except parsers.UsageError as error:
        return _report(error, BAD_INPUT, as_json, usage=error.usage)
    except KeyboardInterrupt as error:
        sentence = str(error) or "Nothing was written."
        return _report(GraphOptError(f"Interrupted. {sentence}"), FAILED, as_json)
    except BrokenPipeError:
        # The reader of our output went away (graphopt info x | head): nothing is wrong, nobody listens.
        _silence_stdout()
        return FAILED
    except (GraphOptError, OSError, MemoryError, ImportError) as error:
        if os.environ.get("GRAPHOPT_DEBUG") == "1":
            raise
        return _report(error, FAILED if isinstance(error, _NOT_THE_INPUT) else BAD_INPUT, as_json)
    except Exception as error:
        if os.environ.get("GRAPHOPT_DEBUG") == "1":
            raise
        sentence = (
            f"Internal error, {type(error).__name__}: {error}. This is a bug in graphopt; "
            "please report it with the output of the same command under GRAPHOPT_DEBUG=1."
        )
        return _report(GraphOptError(sentence), FAILED, as_json)


def _silence_stdout() -> None:
    """What is still to be written there goes nowhere, also at the end of the process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror}."
    if isinstance(error, MemoryError) and not isinstance(error, GraphOptError):
        return "Out of memory."
    return str(error)


def _report(error: BaseException, status: int, as_json: bool, usage: str | None = None) -> int:
    """Print one error to stderr, and with `--json` as an object to stdout too; return the exit status."""
    sentence = without_code(_sentence(error))
    cause = cause_of(type(error), sentence)
    code = cause.code if cause is not None else None
    if as_json:
        kind = "UsageError" if usage else type(error).__name__
        document = {"error": sentence, "error_type": kind, "code": code, "exit_status": status}
        try:
            print(json.dumps(document, indent=2), flush=True)
        except OSError:
            _silence_stdout()
    print(f"graphopt: {with_code(sentence, code) if code else sentence}", file=sys.stderr)
    if usage:
        print(usage, file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
