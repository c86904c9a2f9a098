"""cli of graphopt."""
