"""The orders of Java's collections."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.plan.java_collections import TreeOrder, copied_hash_order, hash_order, string_hash

NAMES = st.lists(st.text("abcKSTREAM-0123456789", min_size=1, max_size=12), unique=True, max_size=40)


def test_the_hash_of_a_text_is_that_of_java() -> None:
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert (
        string_hash("KSTREAM-SOURCE-0000000000")
        == sum(ord(letter) * 31**power for power, letter in enumerate(reversed("KSTREAM-SOURCE-0000000000"))) % 2**32
    )
    assert string_hash("\U0001f600") == 0xD83D * 31 + 0xDE00  # two UTF-16 units


def test_a_hash_set_gives_names_back_by_bucket() -> None:
    assert hash_order(["b", "a", "c"]) == ["a", "b", "c"]
    assert hash_order(["q", "a"]) == ["q", "a"]  # buckets 1 and 1: the first that was added comes first
    assert hash_order(["a", "q"]) == ["a", "q"]


def test_a_hash_set_grows_when_it_is_more_than_three_quarters_full() -> None:
    twelve = [chr(ord("a") + number) for number in range(12)]
    assert hash_order([*twelve, "q"])[-1] == "q"  # bucket 17 of 32


@given(NAMES)
def test_no_name_is_lost_or_doubled(names: list[str]) -> None:
    assert sorted(hash_order(names)) == sorted(names)
    assert sorted(copied_hash_order(names)) == sorted(names)


@given(NAMES, st.data())
def test_nodes_whose_sizes_stay_stand_by_size_then_name(names: list[str], data: st.DataObject) -> None:
    sizes = {name: data.draw(st.integers(1, 4)) for name in names}
    order = TreeOrder(sizes)
    for name in [*names, *names]:
        order.add(name)
    assert list(order) == sorted(names, key=lambda name: (-sizes[name], name))


@given(NAMES, st.data())
def test_nodes_whose_sizes_change_are_neither_lost_nor_moved(names: list[str], data: st.DataObject) -> None:
    sizes = dict.fromkeys(names, 1)
    order = TreeOrder(sizes)
    seen: list[str] = []
    for name in names:
        order.add(name)
        after = list(order)
        assert [other for other in after if other != name] == seen
        seen = after
        sizes[data.draw(st.sampled_from(names))] += data.draw(st.integers(0, 3))
    assert sorted(seen) == sorted(names)
