"""The processors that drop records of an operator, and the repartitions that it requires."""

from __future__ import annotations

from penstock import Consumed, JoinWindows, Repartitioned, Serdes, StreamsBuilder
from penstock.plan import nodes as n
from penstock.plan.droppers import Dropper, droppers, repartitions_of
from penstock.plan.optimize import MERGE_REPARTITION_TOPICS, SINGLE_STORE_SELF_JOIN, optimize

TEXT = Consumed.with_(Serdes.string(), Serdes.string())


def last(plan: n.Plan, kind: type[n.GraphNode]) -> n.NodeId:
    return [id for id, node in plan.items() if isinstance(node, kind)][-1]


def test_a_join_of_streams_drops_in_the_store_and_the_join_of_each_side() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.join(builder.stream("other", TEXT), lambda one, other: one, JoinWindows.of_time_difference_with_no_grace(1))
    plan = builder._graph.plan()
    assert droppers(plan, last(plan, n.StreamStreamJoinNode)) == [
        Dropper("", ("KSTREAM-WINDOWED-0000000002", "KSTREAM-JOINTHIS-0000000004")),
        Dropper("-other", ("KSTREAM-WINDOWED-0000000003", "KSTREAM-JOINOTHER-0000000005"), 1),
    ]


def test_a_self_join_with_one_store_has_one_dropper() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", TEXT)
    stream.join(stream, lambda one, other: one, JoinWindows.of_time_difference_with_no_grace(1))
    plan = optimize(builder._graph.plan(), frozenset([SINGLE_STORE_SELF_JOIN]))
    (dropper,) = droppers(plan, last(plan, n.StreamStreamJoinNode))
    assert dropper.processors == ("KSTREAM-WINDOWED-0000000001", "KSTREAM-MERGE-0000000005")


def test_an_operator_requires_the_nearest_repartition_also_after_a_merge_of_repartitions() -> None:
    builder = StreamsBuilder()
    keyed = builder.stream("in", TEXT).select_key(lambda key, value: value).filter(lambda key, value: True)
    keyed.group_by_key().count()
    for chosen in (frozenset[str](), frozenset([MERGE_REPARTITION_TOPICS])):
        plan = optimize(builder._graph.plan(), chosen)
        ((id, found),) = repartitions_of(plan, last(plan, n.CountNode))
        assert plan[id] is found


def test_a_repartition_of_the_user_is_an_operator_of_its_own() -> None:
    builder = StreamsBuilder()
    builder.stream("in", TEXT).repartition(Repartitioned.as_("own")).group_by_key().count()
    plan = builder._graph.plan()
    assert list(repartitions_of(plan, last(plan, n.CountNode))) == []
    assert droppers(plan, last(plan, n.RepartitionNode)) == [Dropper("", ("own-repartition-filter",))]
