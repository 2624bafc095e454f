"""State with a time to live on its way between hosts: imported from changelog topics, saved, restored and exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock import Materialized, Serdes, StreamsBuilder, StreamsConfig, Topology, savepoints
from penstock.client.api import OffsetAndMetadata
from penstock.host.commits.committing import PartitionMetadata
from penstock.record import TopicPartition
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.support.brokers import EMBEDDED_ONLY

pytestmark = EMBEDDED_ONLY

TTL_MS = 10_000


def carts(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    options = Materialized.as_("carts").with_ttl(TTL_MS).with_caching_disabled()
    builder.table(source, materialized=options).to_stream().to(target)
    return builder.build()


def run(runner: SparkRunner, topology: Topology, config: StreamsConfig) -> None:
    query = InlineQuery(topology, config, runner.admin)
    query.run_to_end()
    query.close()


def test_imported_saved_and_exported_entries_expire(
    spark_runner: SparkRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    runner, source, target, changelog = (
        spark_runner,
        unique_name("in"),
        unique_name("out"),
        f"{application}-carts-changelog",
    )
    serdes = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
    config, topology = runner.config(application, serdes), carts(source, target)
    runner.create_topics({source: 1, target: 1, changelog: 1})
    left = [InputRecord(b"ann", b"tea", 0), InputRecord(b"bob", b"cup", 9_000)]  # of Kafka Streams, without expiry
    runner.write(source, left)
    runner.write(changelog, left)
    committed = OffsetAndMetadata(2, PartitionMetadata(9_000).encode())
    runner.admin.commit_offsets(application, {TopicPartition(source, 0): committed})
    savepoints.import_from_kafka(topology, config)

    runner.write(source, [InputRecord(b"cid", b"pot", 12_000)])
    run(runner, topology, config)
    assert runner.store(config, "carts").keys() == {b"bob", b"cid"}
    first = [(b"cid", b"pot", 12_000), (b"ann", None, 10_000)]
    assert [(row.key, row.value, row.timestamp) for row in runner.read(target)] == first

    saved = str(tmp_path / "saved")
    savepoints.take(config, saved)
    savepoints.export_to_kafka(saved, topology, config)
    last = {row.key: row.value for row in runner.read(changelog)}
    assert last == {b"ann": None, b"bob": b"cup", b"cid": b"pot"}

    again = config.overridden(
        {"application.id": unique_name("again"), "penstock.checkpoint.dir": str(tmp_path / "again")}
    )
    savepoints.restore(saved, again)
    runner.write(source, [InputRecord(b"dan", b"tea", 20_000)])
    run(runner, topology, again)
    assert runner.store(again, "carts").keys() == {b"cid", b"dan"}
    assert [row.key for row in runner.read(target) if row.value is None] == [b"ann", b"bob"]
