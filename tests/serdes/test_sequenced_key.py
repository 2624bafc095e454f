"""The keys of waiting records: in the order of their numbers, also when several stores become one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock import Serdes
from penstock.serdes.sequenced_key import SequencedKeySerde, renumbered_key, sequenced_key, split_sequenced_key

NUMBERS = st.integers(0, 2**50)


@given(NUMBERS, st.binary())
def test_number_and_key_are_read_back(sequence: int, key: bytes) -> None:
    assert split_sequenced_key(sequenced_key(sequence, key)) == (sequence, key)


@given(NUMBERS, NUMBERS, st.binary(), st.binary())
def test_keys_are_in_the_order_of_their_numbers(one: int, other: int, key: bytes, other_key: bytes) -> None:
    if one < other:
        assert sequenced_key(one, key) < sequenced_key(other, other_key)


def test_a_null_key_adds_nothing() -> None:
    assert sequenced_key(3, None) == b"\0\0\0\0\0\0\0\x03"


@given(st.lists(st.tuples(st.integers(0, 4), NUMBERS), unique=True))
def test_numbers_of_several_stores_stay_in_order_and_are_unique(entries: list[tuple[int, int]]) -> None:
    renumbered = [renumbered_key(sequenced_key(sequence, b"k"), place, 5) for place, sequence in entries]
    assert len(set(renumbered)) == len(entries)
    for place in range(5):
        own = [key for key, (each, _) in zip(renumbered, entries, strict=True) if each == place]
        before = [sequence for each, sequence in entries if each == place]
        assert [split_sequenced_key(key)[0] for key in sorted(own)] == [
            5 * sequence + place for sequence in sorted(before)
        ]


def test_a_missing_serde_becomes_the_default_of_keys() -> None:
    key_serde = Serdes.long()
    assert SequencedKeySerde().with_defaults(key_serde, Serdes.string()).inner is key_serde
