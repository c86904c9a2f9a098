"""Published numbers, measured again: `graphopt reproduce`.

`results.json` has the tables of `docs/results.md`: of each row what is measured on which data (`run`),
seconds by kind of call, chi2, and other solvers. `page` renders it, with what was measured here beside it.
"""
