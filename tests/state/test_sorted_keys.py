"""The sorted keys of a dict, against sorted()."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.state.sorted_keys import SortedKeys

KEYS = st.sampled_from([b"", b"a", b"a\0", b"b", b"\0\x05"])
STEPS = st.lists(
    st.tuples(st.sampled_from(["add", "remove"]), KEYS)
    | st.tuples(st.just("add many"), st.integers(0, 400))
    | st.tuples(st.just("replace"), st.integers(0, 3))
    | st.tuples(st.just("read"), st.tuples(st.none() | KEYS, st.none() | KEYS, st.booleans())),
    max_size=25,
)


@given(STEPS, st.booleans())
@example([("add", b"a"), ("remove", b"a")], True)
def test_reads_are_those_of_the_sorted_dict_after_any_changes(steps: list[tuple[str, Any]], often: bool) -> None:
    content: dict[bytes, None] = {}
    keys = SortedKeys(content)
    for action, given_part in [*steps, ("read", (None, None, False))]:
        match action:
            case "add":
                content[given_part] = None
                keys.changed(given_part)
            case "remove":
                content.pop(given_part, None)
                keys.changed(given_part)
            case "add many":  # more than the pending changes that are inserted in place
                added = [number.to_bytes(2, "big") for number in range(given_part)]
                content.update(dict.fromkeys(added))
                keys.changed_many(added)
            case "replace":
                content.clear()
                content.update({bytes([number]): None for number in range(given_part)})
                keys.forget()
            case _:
                low, high, reverse = given_part
                wanted = [key for key in content if (low or b"") <= key and (high is None or key < high)]
                assert keys.between(low, high, reverse) == sorted(wanted, reverse=reverse)
        if often:  # changes since the last read are inserted in place
            assert keys.between(None, None, False) == sorted(content)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_result_belongs_to_the_caller(reverse: bool) -> None:
    keys = SortedKeys({b"a": None, b"b": None})
    keys.between(None, None, reverse).clear()
    assert keys.between(None, None, False) == [b"a", b"b"]


def test_many_single_changes_are_all_seen() -> None:
    content: dict[bytes, None] = {}
    keys = SortedKeys(content)
    assert keys.between(None, None, False) == []
    for number in range(1_000):
        content[b"%03d" % number] = None
        keys.changed(b"%03d" % number)
    assert keys.between(None, None, False) == [b"%03d" % number for number in range(1_000)]
