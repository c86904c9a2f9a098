"""Schur complement of the damped normal equations.

    [ H_pp  H_pl ] [ x_p ]   [ b_p ]        S   = H_pp - H_pl inv(H_ll) H_lp
    [ H_lp  H_ll ] [ x_l ] = [ b_l ]        b_s = b_p - H_pl inv(H_ll) b_l
                                            x_l = inv(H_ll) (b_l - H_lp x_p)

with the damping inside H_pp and H_ll. H_ll is block diagonal. Reference: Agarwal et al., Bundle Adjustment
in the Large, ECCV 2010.
"""

from __future__ import annotations

from graphopt.cpu_kernels import kernels
from graphopt.errors import OptionError, ShapeError
from graphopt.problem.pattern import BlockPattern

MODES = ("explicit", "implicit")


class SchurComplement(kernels.SchurComplement):
    """Eliminates the blocks `num_kept ..` of a pattern; they must not share stored blocks.

    `explicit` stores S on `reduced_pattern` (only the blocks that occur), for a direct solver; `implicit`
    only multiplies with it, for `Pcg`. Both know its right side and its block diagonal.

    It offers:
        form(values, damping, b) -> bool: take new numbers, once per damping; damping (dim,) or None. The
            arrays are referred to, not copied: leave them unchanged until the last `multiply` or
            `back_substitute`. False if an eliminated block is not positive definite (`failed_block`).
        reduce(b): another right side after form, with its S and its inverses of H_ll.
        back_substitute(x_kept, out=None) -> x (dim,): the whole solution from that of S x_kept = b_s.
        multiply(x, out=None) -> S x (kept_dim,), without S.
        diagonal_blocks() -> the diagonal blocks of S, column-major, one after the other.

    Attributes after form, overwritten by the next one:
        reduced_values: values of S on reduced_pattern; explicit only.
        reduced_b: (kept_dim,) b_s.
    """

    def __init__(self, pattern: BlockPattern, num_kept: int, mode: str = "explicit") -> None:
        """Index the blocks by kept column and, if explicit, find the blocks of S."""
        if mode not in MODES:
            raise OptionError(f"mode is {mode!r}, expected one of {', '.join(MODES)}.")
        if not 0 <= num_kept <= pattern.num_blocks:
            raise ShapeError(
                f"SchurComplement: num_kept is {num_kept}, expected 0 .. {pattern.num_blocks} "
                "(the pattern's number of blocks)."
            )
        super().__init__(pattern, num_kept, mode)
