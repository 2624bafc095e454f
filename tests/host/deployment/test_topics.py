"""The partitions of repartition topics and broadcasts, which follow from other topics."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import Backoff, Consumed, KStream, Park, Repartitioned, Serdes, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, TopologyError
from penstock.host.deployment.internal_topics import internal_topics
from penstock.host.deployment.layout import layout_of
from penstock.host.deployment.topics import check_sink_topics, repartition_counts
from penstock.plan.topology import built_topology


def named(name: str, partitions: int | None = None) -> Repartitioned:
    options = Repartitioned.as_(name)
    return options if partitions is None else options.with_number_of_partitions(partitions)


def counts(builder: StreamsBuilder, topics: Mapping[str, int]) -> dict[str, int]:
    found = repartition_counts(built_topology(builder.build(), "app"), topics)
    return {name.removeprefix("app-").removesuffix("-repartition"): count for name, count in found.items()}


def test_a_repartition_topic_has_the_partitions_of_the_largest_topic_before_it() -> None:
    builder = StreamsBuilder()
    builder.stream("a").merge(builder.stream("b")).repartition(named("r")).repartition(named("next"))
    assert counts(builder, {"a": 2, "b": 3}) == {"r": 3, "next": 3}


@given(
    st.integers(1, 6),
    st.lists(st.integers(1, 6), max_size=3),
    st.lists(st.integers(1, 6) | st.none(), max_size=2),
    st.integers(1, 3),
)
def test_each_task_has_one_partition_of_each_broadcast(
    control: int, beside: list[int], moved: list[int | None], broadcasts: int
) -> None:
    builder = StreamsBuilder()
    source = builder.stream("control")
    stream: KStream = source.broadcast(named("b0"))
    for number in range(1, broadcasts):
        stream = stream.merge(builder.stream(f"control{number}").broadcast(named(f"b{number}")))
    for number, _ in enumerate(beside):
        stream = stream.merge(builder.stream(f"in{number}"))
    for number, partitions in enumerate(moved):
        stream = stream.merge(builder.stream("before").repartition(named(f"r{number}", partitions)))
    stream.to("out")
    topics = {"before": 3, "control": control, **{f"control{n}": n + 1 for n in range(1, broadcasts)}}
    topics |= {f"in{number}": count for number, count in enumerate(beside)}
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:1"}, environment={})
    layout = layout_of(built_topology(builder.build(), "app"), config, topics)
    for number in range(broadcasts):
        topic = f"app-b{number}-broadcast-repartition"
        tasks = {task for task, group in layout.groups.items() if any(each.topic == topic for each in group)}
        (subtopology,) = {task.subtopology for task in tasks}
        assert tasks == {task for task in layout.groups if task.subtopology == subtopology}
        assert len(tasks) == layout.topic_partitions[topic]
    others = [*beside, *(3 if count is None else count for count in moved)]
    wanted = max(others or [control, *range(2, broadcasts + 1)])
    assert layout.topic_partitions["app-b0-broadcast-repartition"] == wanted


def test_a_broadcast_follows_topics_that_become_equal() -> None:
    builder = StreamsBuilder()
    moved = builder.stream("large").repartition(named("r"))
    moved.join(builder.table("small"), lambda one, other: one).merge(builder.stream("in").broadcast(named("b")))
    assert counts(builder, {"large": 8, "small": 2, "in": 1}) == {"r": 2, "b-broadcast": 2}


def test_a_topic_after_a_broadcast_has_the_partitions_of_its_tasks() -> None:
    builder = StreamsBuilder()
    both = builder.stream("in").broadcast(named("b")).merge(builder.stream("data"))
    both.repartition(named("r"))
    assert counts(builder, {"in": 1, "data": 4}) == {"b-broadcast": 4, "r": 4}


def test_a_broadcast_beside_topics_that_follow_from_it_has_the_partitions_of_its_own_input() -> None:
    builder = StreamsBuilder()
    rules = builder.stream("in").broadcast(named("b"))
    rules.merge(rules.repartition(named("r")).repartition(named("s"))).to("out")
    assert counts(builder, {"in": 2}) == {"b-broadcast": 2, "r": 2, "s": 2}


@pytest.mark.parametrize("partitions", [4, 5])
def test_a_user_may_fix_as_many_partitions_as_there_are_tasks_or_more(partitions: int) -> None:
    builder = StreamsBuilder()
    other = builder.stream("in").broadcast(named("other"))
    builder.stream("in").broadcast(named("b", partitions)).merge(builder.stream("data")).merge(other)
    assert counts(builder, {"in": 1, "data": 4}) == {"b-broadcast": partitions, "other-broadcast": partitions}


def test_fewer_partitions_than_tasks_are_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("in").broadcast(named("b", 3)).merge(builder.stream("data"))
    with pytest.raises(
        TopologyError, match=r"app-b-broadcast-repartition has 3 partitions, .* has 4 tasks, .*set it to 4"
    ):
        counts(builder, {"in": 1, "data": 4})


def test_the_topic_of_a_broadcast_has_the_settings_of_a_repartition_topic() -> None:
    builder = StreamsBuilder()
    builder.stream("in").broadcast(named("b")).merge(builder.stream("data").repartition(named("r")))
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:1"}, environment={})
    layout = layout_of(built_topology(builder.build(), "app"), config, {"in": 1, "data": 2})
    first, second = internal_topics(layout)
    assert (first.name, first.partitions) == ("app-b-broadcast-repartition", 2)
    assert first.config == second.config


def test_a_missing_topic_is_named_with_the_node_its_purpose_and_the_line() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(Serdes.string(), Serdes.string()))
    parking = Park(backoff=Backoff(10), attempts=2, then="failed")
    stream.map_values(len, named="length", on_error=parking).to("lengths")
    stream.group_by_key().count(named="count").late_to("late")
    config = StreamsConfig({"errors.dead.letter.queue.topic.name": "dead"}, environment={})
    with pytest.raises(StreamsError, match="Topics that sinks write to do not exist") as caught:
        check_sink_topics(built_topology(builder.build(), "app"), {"in": 1}, config)
    said = "\n".join(caught.value.__notes__)
    for part in (
        r"length-dead-letters writes what still fails in length .* by then= of Park or Calls, to failed \(.*\.py:\d+\)",
        r"writes the records of length to lengths \(.*\.py:\d+\)",
        r"writes what count drops, by late_to, to late \(.*\.py:\d+\)",
        r"errors\.dead\.letter\.queue\.topic\.name names dead for dead letters",
    ):
        assert re.search(part, said), said
