"""Park: its arguments, and the node, store and sink that an operator gets from it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Backoff, Consumed, Park, Serdes, StreamsBuilder
from penstock.dsl.park import parking
from penstock.errors import TopologyError

BACKOFF = Backoff(timedelta(seconds=1))
PARK = Park(backoff=BACKOFF, attempts=3)
STRING, LONG = Serdes.string(), Serdes.long()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"backoff": 1_000},
            TypeError,
            r"Expected a Backoff for Park, got 1000: write Backoff\(timedelta\(seconds=1\)\)",
        ),
        ({"attempts": 0}, ValueError, "attempts of Park to be 1 or more, got 0"),
        ({"attempts": 1.5}, TypeError, "attempts of Park as a whole number, got 1.5"),
        ({"attempts": True}, TypeError, "attempts of Park as a whole number"),
        ({"max_records": 0}, ValueError, "max_records of Park to be 1 or more"),
        ({"max_bytes": 0}, ValueError, "max_bytes of Park to be 1 or more"),
        ({"then": 5}, TypeError, "Expected the name of a topic for then of Park, got 5"),
        ({"then": "no topic"}, TopologyError, "no topic"),
        ({"key_serde": str}, TypeError, "Expected a Serde as key_serde"),
        ({"store_name": "a b"}, TopologyError, "a b"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Park(**{"backoff": BACKOFF, "attempts": 3, **arguments})


def test_on_error_must_be_a_park() -> None:
    with pytest.raises(TypeError, match=r"Expected a Park as on_error of charge, got 'retry': write Park\(backoff="):
        StreamsBuilder().stream("in").peek(print, named="charge", on_error="retry")  # type: ignore[arg-type]  # wrong on purpose


def test_a_serde_that_does_not_fit_the_stream_is_refused() -> None:
    builder = StreamsBuilder()
    with pytest.raises(TypeError, match="the keys are of type str, but LongSerde writes int"):
        builder.stream("in", Consumed.with_(STRING, STRING)).peek(print, on_error=PARK.with_key_serde(LONG))


def test_nothing_is_parked_without_it() -> None:
    assert parking(None, "charge", None, None) is None


def test_the_store_is_named_after_the_operator_and_keeps_a_changelog() -> None:
    found = parking(PARK, "charge", STRING, LONG)
    assert found is not None
    assert (found.store.name, found.store.logging, found.store.caching) == ("charge-parked", True, False)
    assert (found.store.key_serde.inner, found.store.value_serde.inner) == (STRING, LONG)  # type: ignore[union-attr]  # serdes of waiting records
    assert (found.key_serde, found.value_serde, found.dead_letters) == (STRING, LONG, None)
    assert not found.rules.writes_dead_letters


def test_options_of_the_store_are_taken() -> None:
    park = PARK.with_store_name("waiting").with_key_serde(LONG).with_value_serde(STRING)
    found = parking(park, "charge", None, None)
    assert found is not None
    assert (found.store.name, found.key_serde, found.value_serde) == ("waiting", LONG, STRING)


def test_the_description_shows_the_store_and_the_sink() -> None:
    builder = StreamsBuilder()
    park = Park(backoff=BACKOFF, attempts=3, then="letters")
    builder.stream("in").filter(lambda key, value: True, named="check", on_error=park).to("out")
    shown = str(builder.build().describe())
    assert "Processor: check (stores: [check-parked])\n      --> KSTREAM-SINK-0000000002, check-dead-letters" in shown
    assert "Sink: check-dead-letters (topic: letters)\n      <-- check" in shown
