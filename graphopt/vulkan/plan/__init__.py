"""What is decided before a solver is made: sizes, costs, schedule, configuration."""
