"""Serdes that annotations choose, where neither an operator nor the configuration names one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from penstock import (
    Consumed,
    FixedKeyProcessor,
    FixedKeyRecord,
    KStream,
    Processor,
    ProcessorSupplier,
    Record,
    Serdes,
    StreamsBuilder,
)
from penstock.errors import StreamsError
from penstock.serdes import Serde
from penstock.testing import TopologyTestDriver

STRING, BYTES = Serdes.string(), Serdes.bytes()


@dataclass(frozen=True)
class Word:
    text: str
    length: int


def as_word(value: str) -> Word:
    return Word(value, len(value))


def as_words(value: str) -> Iterable[Word]:
    return map(as_word, value.split())


def with_length(key: str, value: str) -> tuple[float, Word]:
    return float(len(value)), as_word(value)


def with_lengths(key: str, value: str) -> list[tuple[float, Word]]:
    return [with_length(key, each) for each in value.split()]


def length(key: str, value: str) -> float:
    return float(len(value))


def count(key: str, value: str) -> int:
    return len(value)


def written(stream_of: Any, config: dict[str, Serde] | None = None) -> list[tuple[bytes, bytes]]:
    """Return the bytes that the stream made by `stream_of` writes for one record."""
    builder = StreamsBuilder()
    source: KStream[str, str] = builder.stream("in", Consumed.with_(key_serde=STRING, value_serde=STRING))
    stream_of(source).to("out")
    with TopologyTestDriver(builder.build(), config or {}) as driver:
        driver.create_input_topic("in", STRING, STRING).pipe_input("k", "a word")
        return [
            (key, value) for key, value in driver.create_output_topic("out", BYTES, BYTES).read_key_values_to_list()
        ]


WHOLE = b'{"text":"a word","length":6}'
PARTS = [b'{"text":"a","length":1}', b'{"text":"word","length":4}']
SIX, ONE, FOUR = (Serdes.double().serialize("out", number) for number in (6.0, 1.0, 4.0))


@pytest.mark.parametrize(
    ("stream_of", "expected"),
    [
        (lambda source: source.map_values(as_word), [(b"k", WHOLE)]),
        (lambda source: source.flat_map_values(as_words), [(b"k", part) for part in PARTS]),
        (lambda source: source.map(with_length), [(SIX, WHOLE)]),
        (lambda source: source.flat_map(with_lengths), [(ONE, PARTS[0]), (FOUR, PARTS[1])]),
        (lambda source: source.select_key(length), [(SIX, b"a word")]),
        (lambda source: source.group_by(length).count().to_stream(), [(SIX, b"\0\0\0\0\0\0\0\1")]),
        (lambda source: source.to_table().map_values(as_word).to_stream(), [(b"k", WHOLE)]),
        (lambda source: source.map_values(as_word).filter(lambda key, word: True), [(b"k", WHOLE)]),
    ],
)
def test_what_a_function_returns_says_how_it_is_written(stream_of: Any, expected: list[tuple[bytes, bytes]]) -> None:
    assert written(stream_of) == expected


In = TypeVar("In")


class Reading(Processor[str, In, float, Word]):
    """Leaves open what it takes; forwards the words of a text under their lengths."""

    def process(self, record: Record[str, Any]) -> None:
        word = as_word(record.value)
        self.context.forward(Record(float(word.length), word, record.timestamp))


class ReadingTexts(Reading[str]):
    pass


class Untyped(Reading[str], Processor):
    """A class whose base has the types."""


class FixedReading(FixedKeyProcessor[str, str, Word]):
    def process(self, record: FixedKeyRecord[str, str]) -> None:
        self.context.forward(record.with_value(as_word(record.value)))


class ReadingSupplier(ProcessorSupplier):
    def get(self) -> Processor:
        return ReadingTexts()


@pytest.mark.parametrize(
    ("stream_of", "expected"),
    [
        (lambda source: source.process(Reading), [(SIX, WHOLE)]),
        (lambda source: source.process(ReadingTexts), [(SIX, WHOLE)]),
        (lambda source: source.process(lambda: Untyped()), [(SIX, WHOLE)]),
        (lambda source: source.process(ReadingSupplier()), [(SIX, WHOLE)]),
        (lambda source: source.process_values(FixedReading), [(b"k", WHOLE)]),
    ],
)
def test_the_type_parameters_of_a_processor_say_how_what_it_forwards_is_written(
    stream_of: Any, expected: list[tuple[bytes, bytes]]
) -> None:
    assert written(stream_of) == expected


def test_a_processor_whose_type_parameters_choose_no_serde_is_asked_for_one() -> None:
    class Counting(Processor[str, str, str, int]):
        def process(self, record: Record[str, str]) -> None:
            raise NotImplementedError

    with pytest.raises(StreamsError, match="value serde"):
        written(lambda source: source.process(Counting))


def test_a_default_of_the_configuration_goes_before_annotations() -> None:
    class Upper(Serde[Word]):
        def serialize(self, topic: str, value: Word, headers: Any = ()) -> bytes:
            return value.text.upper().encode()

    assert written(lambda source: source.map_values(as_word), {"default.value.serde": Upper()}) == [(b"k", b"A WORD")]


def test_merged_streams_keep_a_serde_that_both_annotations_choose() -> None:
    one = written(lambda source: source.map_values(as_word).merge(source.flat_map_values(as_words)))
    assert sorted(one) == sorted([(b"k", WHOLE), *written(lambda source: source.flat_map_values(as_words))])
    with pytest.raises(StreamsError, match="value serde"):
        written(lambda source: source.map_values(as_word).merge(source.map_values(length)))


@pytest.mark.parametrize("mapper", [count, lambda value: value, str.split])
def test_without_an_annotation_that_chooses_one_serdes_are_asked_for(mapper: Any) -> None:
    with pytest.raises(StreamsError, match="serde"):
        written(lambda source: source.map_values(mapper))
