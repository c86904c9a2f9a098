"""Old name of `graphopt.evaluate.report`."""

import sys
import warnings

from graphopt.evaluate import report

warnings.warn("graphopt.report is graphopt.evaluate.report now.", DeprecationWarning, stacklevel=2)
sys.modules[__name__] = report
