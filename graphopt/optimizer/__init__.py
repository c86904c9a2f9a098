"""optimizer of graphopt."""
