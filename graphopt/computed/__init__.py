"""Optimizations of graphs that have computed values (`types.computed`)."""
