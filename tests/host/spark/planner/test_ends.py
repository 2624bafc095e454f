"""How far the driver hears that inputs can be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from penstock import Consumed, Produced, Serdes, StreamsBuilder
from penstock.host.spark.planner import epoch_planner
from penstock.host.spark.protocol.mailbox import Mailbox
from penstock.record import TopicPartition
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.support.brokers import EMBEDDED_ONLY

STRING = Serdes.string()


@EMBEDDED_ONLY
def test_ends_that_could_not_be_written_are_written_at_the_next_look(
    spark_runner: SparkRunner,
    application: str,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    failures = [OSError("no space left on device")]
    write = epoch_planner.write_ends

    def writing(mailbox: Mailbox, ends: Mapping[TopicPartition, int]) -> None:
        if failures:
            raise failures.pop()
        write(mailbox, ends)

    monkeypatch.setattr(epoch_planner, "write_ends", writing)
    monkeypatch.setattr(epoch_planner, "_ENDS_EVERY_MS", 0)
    source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics({source: 1, target: 1})
    spark_runner.write(source, [InputRecord(b"k", b"v", 1)])
    builder = StreamsBuilder()
    text = Consumed.with_(key_serde=STRING, value_serde=STRING)
    builder.stream(source, text).to(target, Produced.with_(key_serde=STRING, value_serde=STRING))
    config = spark_runner.config(application, {"state.dir": str(tmp_path)})
    mailbox = Mailbox(str(tmp_path / "control"))
    mailbox.create()
    query = InlineQuery(builder.build(), config, spark_runner.admin)
    query.run_to_end()
    query.close()
    assert not failures
    assert epoch_planner.decoded_ends(mailbox.read(epoch_planner.ENDS_FILE)) == {TopicPartition(source, 0): 1}
