"""Named topologies on each host: one comes, one pauses, one goes and comes back, while another runs on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from penstock import (
    Calls,
    KafkaStreamsNamedTopologyWrapper,
    Materialized,
    NamedTopology,
    Produced,
    QueryableStoreTypes,
    Serdes,
    State,
    StoreQueryParameters,
)
from penstock.metrics import Metric, MetricName
from tests.host.support import WITH_A_SESSION, Runner, lines, wait_for
from tests.host.test_topologies import TEXT, final

pytestmark = WITH_A_SESSION

STRING = Serdes.string()
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


def test_operators_with_calls_of_two_topologies_may_have_one_name(
    runner: Runner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, targets = unique_name("in"), {name: unique_name(name) for name in ("one", "other")}
    runner.create_topics({source: 1, **dict.fromkeys(targets.values(), 1)})

    def asking(streams: KafkaStreamsNamedTopologyWrapper, name: str) -> NamedTopology:
        builder = streams.new_named_topology_builder(name)
        asked = builder.stream(source, consumed=TEXT).map_values(ask, named="ask", calls=Calls())
        asked.to(targets[name], Produced.with_(STRING, STRING))
        return builder.build()

    def has(name: str, count: int) -> bool:
        return [each.value for each in runner.read(targets[name])] == [b"%d asked" % number for number in range(count)]

    with KafkaStreamsNamedTopologyWrapper(runner.config(application), **runner.options()) as streams:
        for name in targets:
            streams.add_named_topology(asking(streams, name)).all().result()
        runner.write(source, lines(["0"]))
        wait_for(lambda: has("one", 1) and has("other", 1))
        streams.pause_named_topology("other")
        runner.write(source, lines(["1"]))
        wait_for(lambda: has("one", 2))
        assert has("other", 1)
        streams.remove_named_topology("one").all().result()
        streams.resume_named_topology("other")
        wait_for(lambda: has("other", 2))
        streams.add_named_topology(asking(streams, "one")).all().result()
        runner.write(source, lines(["2"]))
        wait_for(lambda: has("one", 3) and has("other", 3))
    answers = {topic for topic in runner.admin.topics() if topic.startswith(application) and topic.endswith("-answers")}
    assert answers == {f"{application}-{name}-ask-answers" for name in targets}


async def ask(value: str) -> str:
    return f"{value} asked"
