"""The base in memory: views, iterators and closing."""

from __future__ import annotations

import pytest

from penstock.errors import InvalidStateStoreError
from penstock.state.memory import MemoryBase


def filled() -> MemoryBase:
    base = MemoryBase()
    base.apply({"s": {b"a": b"1", b"b": b"2", b"c": b"3"}}, b"one")
    return base


@pytest.mark.parametrize("reverse", [False, True])
def test_an_iterator_has_the_keys_of_its_creation_with_current_values(reverse: bool) -> None:
    base = filled()
    entries = base.view("s").range(None, None, reverse)
    base.apply({"s": {b"a": b"new", b"b": None, b"d": b"4"}}, b"two")
    assert list(entries) == sorted([(b"a", b"new"), (b"c", b"3")], reverse=reverse)
    assert [key for key, _ in base.view("s").range(b"b", None, False)] == [b"c", b"d"]


def test_a_view_stays_valid_when_its_base_is_cleared_and_filled_again() -> None:
    base = filled()
    view = base.view("s")
    assert len(list(view.range(None, None, False))) == 3
    base.clear()
    assert (list(view.range(None, None, False)), view.approximate_num_entries(), base.stamp()) == ([], 0, None)
    base.apply({"s": {b"z": b"9"}}, b"two")
    assert list(view.range(None, None, False)) == [(b"z", b"9")]


def test_a_closed_base_has_dropped_its_entries_and_names_itself() -> None:
    base = filled()
    view = base.view("s")
    base.close()
    assert (view.get(b"a"), base.stamp(), base.measured()) == (None, None, {})
    for call in (lambda: base.view("s"), lambda: base.rebuild(lambda: [{}], b"x")):
        with pytest.raises(InvalidStateStoreError, match="The memory base is closed: create a new one"):
            call()
