"""graph of graphopt."""
