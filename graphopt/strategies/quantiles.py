"""Quantiles of the chi-square distribution, looked up once."""

from functools import cache

from scipy.special import chdtri


@cache
def chi2_quantile(confidence: float, dim: int) -> float:
    """Below it lies chi2 of `dim` degrees of freedom with this probability: 5.991 at 0.95 and 2."""
    return float(chdtri(dim, 1.0 - confidence))
