"""Which histories a start reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Consumed, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.driver.prepared_histories import prepared_histories, with_histories
from penstock.plan.subtopology import BuiltTopology
from tests.host.spark.histories import store_history
from tests.host.support import InputRecord

RECORDS = [InputRecord(b"k", b"v", time, 0) for time in (1, 2, 3)]


def built(*with_history: str) -> BuiltTopology:
    builder = StreamsBuilder()
    for topic in ("a", "b"):
        consumed = Consumed.as_(f"in-{topic}")
        if topic in with_history:
            builder.stream_from_history("/files", topic, 10, consumed)
        else:
            builder.stream(topic, consumed)
    return builder.build().build("app")


def config_of(directory: Path, changelogs: bool = False) -> StreamsConfig:
    values = {"application.id": "app", "penstock.checkpoint.dir": str(directory)}
    return StreamsConfig({**values, "penstock.changelog.topics": changelogs})


def test_histories_of_the_program_and_begun_ones_are_read(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    for topic, end in (("a", 5), ("b", 1)):
        store_history(config, topic, RECORDS, [end, 0])
    checkpoint = Checkpoint(str(tmp_path))
    assert prepared_histories(built(), checkpoint, {}, config) == {}, "left by a start that was interrupted"
    assert prepared_histories(built("a"), checkpoint, {}, config).keys() == {"a"}
    both = prepared_histories(built("a"), checkpoint, {"b": [-1, 0]}, config)
    assert both.keys() == {"a", "b"}
    assert with_histories({"b": [-1, 0]}, both) == {"a": [2, 0], "b": [-1, 0]}


def test_a_topic_that_was_read_gets_no_history(tmp_path: Path) -> None:
    where = r"Topic b has a history \(source in-b, created at .*test_prepared_histories.py:\d+\).*stream\('b'\)"
    with pytest.raises(StreamsError, match=where):
        prepared_histories(built("b"), Checkpoint(str(tmp_path)), {"b": [0]}, config_of(tmp_path))


def test_changelog_topics_are_written_only_after_all_histories(tmp_path: Path) -> None:
    config = config_of(tmp_path, changelogs=True)
    store_history(config, "a", RECORDS, [5, 0])
    checkpoint = Checkpoint(str(tmp_path))
    for known in ({}, {"a": [4, 0]}):
        with pytest.raises(ConfigError, match="The history of topic a is not read yet"):
            prepared_histories(built("a"), checkpoint, known, config)
    assert prepared_histories(built("a"), checkpoint, {"a": [5, 0]}, config).keys() == {"a"}
