"""report of graphopt."""
