"""Records and entries become rows, and are shown with their serdes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Consumed, Grouped, Materialized, Serdes, StreamsBuilder, WindowedSerdes
from penstock.config import StreamsConfig
from penstock.record import AggregationWithHeaders, Headers, RecordBatch, TopicPartition
from penstock.serdes import Serde
from penstock.shadow.comparison import Difference, Recorded
from penstock.shadow.content import ContentRow, Pair
from penstock.shadow.outputs import PartSerdes, StoreCodec, _records, compared_stores, topic_difference
from penstock.shadow.version import ShadowVersion

STRING, LONG = Serdes.string(), Serdes.long()


class Fetched:
    """A fetcher of one batch."""

    def __init__(self, batch: RecordBatch) -> None:
        self._batch = batch

    def fetch(
        self, partition: TopicPartition, start_offset: int, end_offset: int, read_committed: bool
    ) -> list[RecordBatch]:
        return [self._batch]


def counting(store: str, directory: Path, name: str = "old") -> ShadowVersion:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(STRING, STRING))
    stream.group_by_key(Grouped.with_(STRING, STRING)).count(Materialized.as_(store))
    config = StreamsConfig({"application.id": "app", "state.dir": str(directory)}, environment={})
    return ShadowVersion(name, builder.build(), config, "app", directory)


def test_tracebacks_of_dead_letters_do_not_count() -> None:
    plain = (("h", b"1"), ("n", None))
    batch = RecordBatch.of(
        [(b"k", b"v", 5, 0, plain), (b"k", b"v", 5, 1, (*plain, ("__streams.errors.stacktrace", b"program.py")))]
    )
    first, second = _records(Fetched(batch), TopicPartition("t", 0), 2)  # type: ignore[arg-type]  # only fetch is called
    assert first == second
    difference = topic_difference(Pair(first, None), PartSerdes("t", STRING, STRING), PartSerdes("t", None, None))
    assert difference == Difference("k", Recorded("v", 5, plain), None)


class Failing(Serde[str]):
    """A serde of the user that raises an error of its own."""

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return dict(headers)["type"].decode()  # type: ignore[union-attr]  # there is no such header


@pytest.mark.parametrize("serde", [None, LONG, Failing()])
def test_unreadable_bytes_are_shown_as_bytes(serde: Serde[Any] | None) -> None:
    serdes = PartSerdes("t", STRING, serde)
    found = topic_difference(Pair(None, ContentRow(b"k", 5, b"no long")), serdes, serdes)
    assert found == Difference("k", None, Recorded(b"no long", 5))


def test_an_entry_keeps_its_window_and_its_time(tmp_path: Path) -> None:
    codec = StoreCodec(counting("counts", tmp_path), "counts")
    plain = codec.row({"key": "a", "value": 1, "timestamp": 5, "partition": 0})
    later = codec.row({"key": "a", "value": 1, "timestamp": 6, "partition": 1})
    assert plain[:3] == later[:3]
    assert codec.difference(Pair(plain, later)) == Difference("a", Recorded(1, 5), Recorded(1, 6))
    window = codec.row({"key": "a", "window_start": 10, "window_end": 20, "value": 1})
    assert codec.difference(Pair(window, None)) == Difference(
        {"key": "a", "window_start": 10, "window_end": 20}, Recorded(1, None), None
    )


def test_windowed_keys_of_any_store_are_kept(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    windowed = WindowedSerdes.time_windowed(STRING, 10)
    builder.stream("in", Consumed.with_(windowed, LONG)).to_table(materialized=Materialized.as_("last"))
    config = StreamsConfig({"application.id": "app", "state.dir": str(tmp_path)}, environment={})
    codec = StoreCodec(ShadowVersion("old", builder.build(), config, "app", tmp_path), "last")
    row = codec.row({"key": "a", "window_start": 10, "window_end": 20, "value": 1, "timestamp": 5})
    key = {"key": "a", "window_start": 10, "window_end": 20}
    assert codec.difference(Pair(row, None)) == Difference(key, Recorded(1, 5), None)


def test_an_aggregate_with_headers_is_compared_without_them(tmp_path: Path) -> None:
    codec = StoreCodec(counting("counts", tmp_path), "counts")
    kept = AggregationWithHeaders(1, (("h", b"1"),))
    assert codec.row({"key": "a", "value": kept}) == codec.row({"key": "a", "value": 1})


def test_stores_of_one_version_are_named(tmp_path: Path) -> None:
    old, new = counting("counts", tmp_path), counting("totals", tmp_path, "new")
    assert compared_stores(old, old) == (["counts"], {})
    assert compared_stores(old, new) == (
        [],
        {"counts": "only the old version has it", "totals": "only the new version has it"},
    )
