"""Ready aggregations as functions of operators."""

from __future__ import annotations

import pickle

from penstock import aggregations
from penstock.processor.added_values import AddedValues, MergedStates, SubtractedValues

TOTAL = aggregations.sum(len)


def test_the_key_does_not_matter() -> None:
    add, merge, subtract = AddedValues(TOTAL), MergedStates(TOTAL), SubtractedValues(TOTAL)
    one = add("k", "aa", add("other", "b", TOTAL.initial()))
    assert one == 3
    assert merge("k", one, add("k", "cccc", TOTAL.initial())) == 7
    assert subtract("k", "aa", one) == 1


def test_they_can_be_pickled() -> None:
    for function in (AddedValues(TOTAL), MergedStates(TOTAL), SubtractedValues(TOTAL)):
        assert pickle.loads(pickle.dumps(function)) == function
