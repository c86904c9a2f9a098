"""codegen of graphopt."""
