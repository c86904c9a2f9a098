"""io of graphopt."""
