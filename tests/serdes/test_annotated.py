"""Serdes that annotations select: of results, aggregates, items and pairs; a configured default replaces them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from penstock import SessionWindow, TimeWindow, Windowed, WindowedSerdes
from penstock.serdes import Serde, Serdes
from penstock.serdes.annotated import (
    AnnotatedSerde,
    serde_of_aggregate,
    serde_of_annotation,
    serde_of_items,
    serde_of_result,
    serdes_of_pair,
    serdes_of_pairs,
)
from penstock.serdes.buffer import BufferKey, BufferKeySerde
from penstock.serdes.outer_join import TimestampedKeyAndJoinSideSerde
from penstock.serdes.subscription import Instruction, SubscriptionWrapper, SubscriptionWrapperSerde

if TYPE_CHECKING:
    from decimal import Decimal

STRING = Serdes.string()


def wrappers(inner: Serde) -> list[Serde]:
    return [
        Serdes.list(inner),
        WindowedSerdes.time_windowed(inner, 10),
        WindowedSerdes.session_windowed(inner),
        BufferKeySerde(inner),
        SubscriptionWrapperSerde(inner),
        TimestampedKeyAndJoinSideSerde(inner),
    ]


@pytest.mark.parametrize("place", range(6))
def test_the_default_goes_before_annotations_within_serdes_too(place: int) -> None:
    values = [["a"], *(Windowed("a", window(0, 10)) for window in (TimeWindow, SessionWindow)), BufferKey(1, "a", 2)]
    values += [SubscriptionWrapper(None, Instruction.DELETE_KEY_NO_PROPAGATE, "a", None), (1, True, "a")]
    annotated = wrappers(AnnotatedSerde(STRING, is_key=True))[place]
    default, plain = wrappers(Serdes.json())[place], wrappers(STRING)[place]
    for serdes, like in (((Serdes.json(), None), default), ((None, None), plain)):
        resolved = annotated.with_defaults(*serdes)
        assert resolved.serialize("topic", values[place]) == like.serialize("topic", values[place])


@dataclass
class Word:
    text: str


def text() -> str: ...
def number() -> int: ...
def unannotated(): ...  # type: ignore[no-untyped-def]  # what is tested
def of_type_checkers() -> Decimal: ...
def ratio() -> float | None: ...
def words() -> Iterable[Word]: ...
def pair() -> tuple[str, float]: ...
def pair_or_none() -> tuple[str, int] | None: ...
def three() -> tuple[str, str, str]: ...
def pairs() -> list[tuple[str, Word]]: ...


def written(serde: Serde | None, value: Any) -> bytes | None:
    return None if serde is None else serde.serialize("t", value)


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        (text, "a", b"a"),
        (ratio, 1.5, Serdes.double().serialize("t", 1.5)),
        (Word, Word("a"), b'{"text":"a"}'),
        (number, 1, None),
        (unannotated, "a", None),
        (of_type_checkers, "a", None),
        (str.upper, "a", None),
    ],
)
def test_only_a_type_with_one_serde_selects_it(function: Any, value: Any, expected: bytes | None) -> None:
    assert written(serde_of_result(function), value) == expected


def test_an_aggregate_is_what_an_aggregator_returns_before_the_initializer() -> None:
    assert written(serde_of_aggregate(Word, unannotated, text), "a") == b"a"
    assert written(serde_of_aggregate(text, unannotated, number), "a") == b"a"
    assert serde_of_aggregate(number) is None


def test_items_and_pairs_select_the_serdes_within_them() -> None:
    assert written(serde_of_items(words), Word("a")) == b'{"text":"a"}'
    assert serde_of_items(pair) is None
    key, value = serdes_of_pair(pair)
    assert (written(key, "a"), written(value, 1.5)) == (b"a", Serdes.double().serialize("t", 1.5))
    key, value = serdes_of_pair(pair_or_none)
    assert (written(key, "a"), value) == (b"a", None)
    assert serdes_of_pair(three) == serdes_of_pair(text) == serdes_of_pairs(pair) == (None, None)
    key, value = serdes_of_pairs(pairs)
    assert (written(key, "a"), written(value, Word("a"))) == (b"a", b'{"text":"a"}')


@pytest.mark.parametrize("is_key", [True, False])
def test_the_default_of_keys_or_of_values_replaces_an_annotation(is_key: bool) -> None:
    serde = serde_of_annotation(str, is_key=is_key)
    assert isinstance(serde, AnnotatedSerde)
    defaults = (Serdes.json(), Serdes.uuid()) if is_key else (Serdes.uuid(), Serdes.json())
    assert written(serde.with_defaults(*defaults), "a") == b'"a"'
    assert written(serde.with_defaults(None, None), "a") == b"a"
    assert not serde.uses_headers
