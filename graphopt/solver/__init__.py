"""solver of graphopt."""
