"""What computes: rows and lists of objects, the `graphopt.Graph` made of them, solvers, devices, signals."""
