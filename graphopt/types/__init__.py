"""types of graphopt."""
