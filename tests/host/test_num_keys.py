"""The number of keys of stores in memory, as each host measures it (KIP-1250)."""

from __future__ import annotations

import pytest

from penstock import Consumed, KafkaStreams, Materialized, Serdes, StreamsBuilder, Topology
from tests.host.support import IN_PROCESSES, ON_SPARK, InputRecord, Runner, wait_for

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 1)]

TEXT = Serdes.string()


def latest(source: str) -> Topology:
    builder = StreamsBuilder()
    rows = builder.stream(source, Consumed.with_(TEXT, TEXT))
    for name, kind in (("memory", "in_memory"), ("disk", "rocksdb")):
        options = Materialized.as_(name).with_key_serde(TEXT).with_value_serde(TEXT)
        rows.to_table(materialized=options.with_store_type(kind))
    return builder.build()


def counts(streams: KafkaStreams) -> dict[tuple[str, str], float]:
    """Return the metric by task and store."""
    found = {}
    for name, metric in streams.metrics().items():
        if name.name == "num-keys":
            tags = dict(name.tag_items)
            (store,) = (value for key, value in tags.items() if key.endswith("state-id"))
            found[tags["task-id"], store] = metric.metric_value
    return found


@pytest.mark.parametrize("runner", [ON_SPARK, "threads", IN_PROCESSES], indirect=True)
def test_stores_in_memory_have_the_number_of_their_keys(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    with KafkaStreams(latest(topics[0]), runner.config(application), **runner.options()) as streams:
        rows = [(b"a", 0), (b"b", 0), (b"c", 1), (b"a", 0)]
        runner.write(topics[0], [InputRecord(key, b"v", 1_000, partition) for key, partition in rows])
        wait_for(lambda: counts(streams) == {("0_0", "memory"): 2, ("0_1", "memory"): 1})
        runner.write(topics[0], [InputRecord(b"b", None, 2_000, 0)])
        wait_for(lambda: counts(streams) == {("0_0", "memory"): 1, ("0_1", "memory"): 1})
