"""Named topologies on each host: one comes, one pauses, one goes and comes back, while another runs on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from penstock import (
    KafkaStreamsNamedTopologyWrapper,
    Materialized,
    NamedTopology,
    QueryableStoreTypes,
    State,
    StoreQueryParameters,
)
from penstock.metrics import Metric, MetricName
from tests.host.support import WITH_A_SESSION, Runner, lines, wait_for
from tests.host.test_topologies import TEXT, final

pytestmark = WITH_A_SESSION

COUNTS = StoreQueryParameters.from_name_and_type("counts", QueryableStoreTypes.key_value_store())


def counting(streams: KafkaStreamsNamedTopologyWrapper, name: str, source: str, target: str) -> NamedTopology:
    builder = streams.new_named_topology_builder(name)
    words = builder.stream(source, consumed=TEXT).group_by(lambda _, value: value)
    words.count(materialized=Materialized.as_("counts")).to_stream().to(target)
    return builder.build()


def committed(metrics: Mapping[MetricName, Metric]) -> bool:
    """Return whether commits and their times are measured."""
    found = {name.name: metric.metric_value for name, metric in metrics.items()}
    return "commit-latency-avg" in found and float(found["commit-total"]) > 0


def test_topologies_come_pause_and_go_while_others_run(
    runner: Runner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, one, other = unique_name("in"), unique_name("one"), unique_name("other")
    runner.create_topics({source: 2, one: 1, other: 1})
    config = runner.config(application, {"default.key.serde": TEXT.key_serde})
    expected: Counter[str] = Counter()

    def write(*words: str) -> None:
        runner.write(source, lines(words, partitions=2))
        expected.update(words)

    def counted(target: str) -> bool:
        return final(runner.read(target)) == expected

    with KafkaStreamsNamedTopologyWrapper(config, **runner.options()) as streams:
        streams.add_named_topology(counting(streams, "one", source, one)).all().result()
        write("a", "b", "a")
        wait_for(lambda: counted(one))
        streams.add_named_topology(counting(streams, "other", source, other)).all().result()
        wait_for(lambda: counted(other))
        streams.pause_named_topology("other")
        before = dict(expected)
        write("b", "c")
        wait_for(lambda: counted(one))
        assert final(runner.read(other)) == before
        streams.remove_named_topology("other").all().result()
        assert streams.state() is State.RUNNING
        streams.clean_up_named_topology("other")
        write("a")
        streams.add_named_topology(counting(streams, "other", source, other)).all().result()
        wait_for(lambda: counted(one) and counted(other) and streams.state() is State.RUNNING)
        assert set(streams.statistics()["topologies"]) == {"one", "other"}
        # The outputs of a commit are there before its stores answer.
        wait_for(lambda: dict(streams.store(COUNTS, "other").all()) == expected)
        wait_for(lambda: runner.entries(streams.running_topology("one").table("counts")) == expected)
        assert set(streams.all_local_store_partition_lags_for_topology("other")) == {"counts"}
        wait_for(lambda: committed(streams.running_topology("one").metrics()))
    assert streams.state() is State.NOT_RUNNING
