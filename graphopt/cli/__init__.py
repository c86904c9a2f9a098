"""The `graphopt` command: parsers without heavy imports, one module with `run(args)` per command."""
