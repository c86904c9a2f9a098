"""device of graphopt."""
