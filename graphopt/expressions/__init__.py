"""Batches of expressions: thousands of different functions of one data matrix, evaluated or fitted together.

    texts = ["p1 * x1^p2", "p1 + log(x2) / x1", ...]
    values = graphopt.evaluate_batch(texts, data, parameters)            # (expressions, sets, points)
    sums = graphopt.evaluate_batch(texts, data, parameters, target=y)    # (expressions, sets)
    fits = graphopt.fit_batch(texts, data, y, start)                     # Levenberg-Marquardt from every set

text or function -> graph in which equal expressions are one node, with derivatives by forward mode ->
three stages of instructions, of parameters alone (once per set), of data alone (once per block of points),
of both -> interpreter on vectors of points. `batch` holds the expressions, `arguments` checks arrays,
`traced` takes functions; native/src/batch does the rest, on a GPU `on_device`.
"""

from graphopt.expressions.batch import ExpressionBatch, ExpressionError, ExpressionProblem
from graphopt.expressions.device_arrays import DeviceArray, to_device
from graphopt.expressions.evaluate import evaluate_batch
from graphopt.expressions.fit import BatchFit, FitStatus, fit_batch
from graphopt.expressions.functions import DeviceFunction, device_function

__all__ = [
    "BatchFit",
    "DeviceArray",
    "DeviceFunction",
    "ExpressionBatch",
    "ExpressionError",
    "ExpressionProblem",
    "FitStatus",
    "device_function",
    "evaluate_batch",
    "fit_batch",
    "to_device",
]
