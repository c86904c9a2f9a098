"""One driver per library: load a .g2o file once, then solve it from its start values as often as asked."""
