"""symbolic of graphopt."""
