"""The ways to store H and to evaluate edges by their names, as options have them."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.option_names import Evaluation as EvaluationName
from graphopt.option_names import Products
from graphopt.vulkan.operators.blocks import Blocks
from graphopt.vulkan.operators.collect import Collect
from graphopt.vulkan.operators.interface import EdgeSchedule, Evaluation, Operators
from graphopt.vulkan.operators.jacobians import Jacobians
from graphopt.vulkan.operators.jp import Jp
from graphopt.vulkan.operators.matrix_free import MatrixFree
from graphopt.vulkan.operators.scatter import Scatter

PRODUCTS: dict[Products, type[EdgeSchedule]] = {row.name: row for row in (Blocks, MatrixFree, Jacobians, Jp)}
EVALUATIONS: dict[EvaluationName, type[Evaluation]] = {
    row.name: row for row in (Evaluation, Scatter, Collect)
}


def operators_of(products: Sequence[Products], evaluations: Sequence[EvaluationName]) -> Operators:
    """Those of these names, one of each per edge group."""
    return Operators(
        tuple(PRODUCTS[name] for name in products), tuple(EVALUATIONS[name] for name in evaluations)
    )
