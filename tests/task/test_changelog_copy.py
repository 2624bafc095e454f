"""A copy of stores that follows changelog topics: what it says of a changelog that is not of its store."""

from __future__ import annotations

import pytest

from penstock import Materialized, Serdes, StreamsBuilder, TimeWindows
from penstock.config import StreamsConfig
from penstock.errors import ProcessorStateError
from penstock.record import RecordBatch, TopicPartition
from penstock.state.memory import MemoryBase
from penstock.task.changelog_copy import ChangelogCopy

CHANGELOG = TopicPartition("app-counts-changelog", 2)


def test_a_changelog_of_another_kind_of_store_is_named_with_what_to_do() -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.count(Materialized.as_("counts"))
    (part,) = builder.build().build("app").subtopologies
    text = Serdes.string()
    config = StreamsConfig({"application.id": "app", "default.key.serde": text, "default.value.serde": text})
    copy = ChangelogCopy(part.stores, {"counts": CHANGELOG}, config, MemoryBase())
    plain = RecordBatch.of([(b"a", (1).to_bytes(8, "big"), 0, 7, ())])
    with pytest.raises(ProcessorStateError, match="expected a key that ends in 12 bytes of window") as caught:
        copy.apply("counts", plain, 8)
    (note,) = caught.value.__notes__
    assert note.startswith(f"Store counts is restored from topic {CHANGELOG.topic}, partition 2, before offset 8.")
    assert note.endswith("give it another name, or start over with penstock reset FILE.")
