"""The results of an operator inside another one."""

from __future__ import annotations

from penstock.processor.kept_results import KeptResults
from penstock.record import Record


def test_results_are_kept_in_order_until_they_are_taken() -> None:
    results = KeptResults()
    one, two = Record("k", 1, 5), Record("k", 2, 5)
    results.forward(one)
    results.forward(two, "child")
    assert results.take() == [one, two]
    assert results.take() == []
