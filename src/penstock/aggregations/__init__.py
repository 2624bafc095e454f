"""Ready aggregations of the values of a key, for `aggregate` of grouped streams and tables."""

from penstock.aggregations.api import Aggregation
from penstock.aggregations.functions import (
    approx_distinct,
    collect,
    combined,
    count,
    first,
    last,
    max,  # noqa: A004  users write aggregations.max
    mean,
    min,  # noqa: A004  users write aggregations.min
    quantiles,
    sum,  # noqa: A004  users write aggregations.sum
    top,
)

__all__ = [
    "Aggregation",
    "approx_distinct",
    "collect",
    "combined",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "quantiles",
    "sum",
    "top",
]
