"""Old name of `graphopt.evaluate.datasets`."""

import sys
import warnings

from graphopt.evaluate import datasets

warnings.warn("graphopt.datasets is graphopt.evaluate.datasets now.", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = datasets
