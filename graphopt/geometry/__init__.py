"""geometry of graphopt."""
