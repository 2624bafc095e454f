"""The serdes of records that wait: round trips, and errors that name the store and the options."""

from __future__ import annotations

import pytest

from penstock import Record, Serdes
from penstock.errors import ConfigError, StreamsError
from penstock.processor.waiting_serdes import RecordSerdes, record_serdes
from penstock.record import RecordMetadata
from penstock.serdes import Serde
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.waiting_value import WaitingValueSerde

STRING, LONG = Serdes.string(), Serdes.long()
PLACE = RecordMetadata("in", 1, 7)


def serdes(key_serde: Serde | None = STRING, value_serde: Serde | None = LONG) -> RecordSerdes:
    return record_serdes("Park", "waiting", "app", SequencedKeySerde(key_serde), WaitingValueSerde(value_serde))


@pytest.mark.parametrize("record", [Record("k", 5, 9, (("h", b"1"),)), Record(None, None, 0)])
def test_a_record_survives_the_round_trip(record: Record[str | None, int | None]) -> None:
    waiting = serdes().waiting(record, PLACE, (b"a", None))
    assert (waiting.topic, waiting.partition, waiting.offset, waiting.source) == ("in", 1, 7, (b"a", None))
    assert serdes().record_of(waiting) == record
    assert serdes().key_of(record) == waiting.key


def test_a_part_that_a_serde_cannot_write_fails() -> None:
    with pytest.raises(StreamsError, match=r"Store 'waiting' cannot keep the value 'x' .* in Park, with value_serde="):
        serdes().waiting(Record("k", "x", 0), PLACE, None)


def test_a_part_that_a_serde_cannot_read_fails() -> None:
    waiting = serdes().waiting(Record("k", 5, 0), PLACE, None)
    with pytest.raises(StreamsError, match=r"whose key LongSerde cannot read .* with the key_serde of Park"):
        serdes(LONG).record_of(waiting)


@pytest.mark.parametrize(("given", "missing"), [((None, LONG), "key"), ((STRING, None), "value")])
def test_both_serdes_are_necessary(given: tuple[Serde | None, Serde | None], missing: str) -> None:
    with pytest.raises(ConfigError, match=f"'waiting' of waiting records has no {missing} serde: name one in Park"):
        serdes(*given)
