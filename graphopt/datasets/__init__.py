"""datasets of graphopt."""
