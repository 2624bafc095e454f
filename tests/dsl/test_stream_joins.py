"""The joins of KStream, and the errors of all joins: names, repartitions, arguments, keys that never meet."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    Consumed,
    Joined,
    JoinWindows,
    Materialized,
    Named,
    Produced,
    Serdes,
    Stores,
    StreamJoined,
    StreamsBuilder,
    TableJoined,
    TimeWindows,
    WindowedSerdes,
)
from penstock.errors import TopologyError
from penstock.plan.subtopology import BuiltTopology, ProcessorSpec
from penstock.processor.stateless import NullKeyFilter, StreamMerge
from penstock.serdes import Serde
from penstock.testing import TopologyTestDriver

WINDOWS = JoinWindows.of_time_difference_and_grace(10, 5)


def first(one: Any, other: Any) -> Any:
    return one


def build(builder: StreamsBuilder) -> BuiltTopology:
    return builder.build().build("app")


def test_a_join_of_streams_names_its_nodes_and_stores_after_what_the_user_gave() -> None:
    builder = StreamsBuilder()
    options = StreamJoined.as_("kept").with_name("both")
    builder.stream("a").outer_join(builder.stream("b"), first, WINDOWS, stream_joined=options)
    (part,) = build(builder).subtopologies
    assert {node.name for node in part.nodes} >= {
        "both-this-windowed",
        "both-other-windowed",
        "both-outer-this-join",
        "both-outer-other-join",
        "both-merge",
    }
    assert set(part.stores) == {
        "kept-outer-this-join-store",
        "kept-outer-other-join-store",
        "kept-outer-shared-join-store",
    }
    assert part.changelogs["kept-outer-this-join-store"][1]["cleanup.policy"] == "delete"


def test_joins_without_names_share_a_repartition() -> None:
    builder = StreamsBuilder()
    changed, other = builder.stream("a").select_key(first), builder.stream("b")
    for _ in range(2):
        changed.join(other, first, WINDOWS)
    changed.join(other, first, WINDOWS, stream_joined=StreamJoined.with_().with_name("j"))
    assert list(build(builder).repartition_topics) == [
        "app-KSTREAM-KEY-SELECT-0000000001-repartition",
        "app-j-left-repartition",
    ]


def test_the_number_of_parameters_says_whether_a_joiner_takes_the_key() -> None:
    builder = StreamsBuilder()
    stream, other = builder.stream("a"), builder.stream("b")
    stream.join(other, lambda key, one, two: key, WINDOWS)
    with pytest.raises(TypeError, match=r"joiner\(key, value, other_value\)"):
        stream.join(other, lambda one: one, WINDOWS)


def test_each_kind_of_other_side_has_its_own_options() -> None:
    builder = StreamsBuilder()
    stream, table = builder.stream("a"), builder.table("t")
    with pytest.raises(TypeError, match="Expected JoinWindows"):
        stream.join(stream, first)  # type: ignore[call-overload]  # the mistake that is tested
    with pytest.raises(TypeError, match=r"global table needs the key .* key_selector"):
        stream.join(builder.global_table("g"), first)  # type: ignore[call-overload]  # the mistake that is tested
    with pytest.raises(TypeError, match="takes the joiner first, and the key selector by name"):
        stream.join(builder.global_table("h"), lambda key, value: key, first)  # type: ignore[call-overload]  # as above
    with pytest.raises(TypeError, match="Windows are for joins with a KStream"):
        stream.join(table, first, WINDOWS)  # type: ignore[call-overload]  # the mistake that is tested
    with pytest.raises(TypeError, match="Expected a KStream, KTable or GlobalKTable"):
        stream.join("t", first)  # type: ignore[call-overload]  # the mistake that is tested
    with pytest.raises(TypeError, match="Expected a KTable"):
        table.join(stream, first)  # type: ignore[call-overload]  # the mistake that is tested


def test_a_join_that_is_written_in_the_order_of_java_is_refused_with_what_to_write() -> None:
    builder = StreamsBuilder()
    # The mistakes that are tested: `Any` keeps the type checker out of them.
    stream: Any = builder.stream("a")
    table: Any = builder.table("t")
    everywhere: Any = builder.global_table("g")
    kept, nodes, one = Materialized.as_("kept"), Named.as_("nodes"), lambda value: value
    for wrong, told in (
        (lambda: table.join(table, first, kept), "its Materialized is given by position: write materialized="),
        (lambda: table.left_join(table, first, nodes, kept), "Named is given by position: write named="),
        (lambda: table.outer_join(table, first, kept), "of two tables by key takes .* write materialized="),
        (lambda: table.join(table, one, first), r"the joiner first, and the foreign_key_extractor by name: join\("),
        (lambda: table.left_join(table, one, first, TableJoined.as_("j"), kept), "the foreign_key_extractor by name"),
        (lambda: table.join(table, first, kept, foreign_key_extractor=one), "by foreign key takes table_joined and"),
        (lambda: table.join(table, first, foreign_key_extractor=one, named=nodes), "has no argument named: it takes"),
        (lambda: table.join(table, first, joined=Joined.as_("j")), "has no argument joined: it takes named and mat"),
        (lambda: stream.join(table, first, Joined.as_("j")), "takes joined by name, but its Joined .* write joined="),
        (lambda: stream.left_join(table, first, materialized=kept), "no argument materialized: it takes joined"),
        (lambda: stream.join(stream, first, WINDOWS, StreamJoined.as_("s")), "write stream_joined="),
        (lambda: stream.outer_join(stream, first, WINDOWS, StreamJoined.as_("s")), "write stream_joined="),
        (lambda: stream.outer_join(stream, first, WINDOWS, named=nodes), "streams has no argument named"),
        (lambda: stream.join(everywhere, lambda key, value: key, first, nodes), "key selector by name"),
        (lambda: stream.join(everywhere, first, nodes), "key_selector and named by name, but its Named"),
    ):
        with pytest.raises(TypeError, match=told):
            wrong()


def test_both_sides_are_of_one_builder() -> None:
    one, other = StreamsBuilder(), StreamsBuilder()
    stream, table = one.stream("a"), one.table("t")
    others, other_table = other.stream("b"), other.table("u")
    for wrong in (
        lambda: stream.join(others, first, WINDOWS),
        lambda: stream.outer_join(others, first, WINDOWS),
        lambda: stream.join(other_table, first),
        lambda: table.join(other_table, first),
        lambda: table.join(other_table, first, foreign_key_extractor=lambda value: value),
        lambda: stream.merge(others),
    ):
        with pytest.raises(TopologyError, match="made by another StreamsBuilder"):
            wrong()


def test_a_grace_period_needs_a_table_with_versions_for_as_long() -> None:
    builder = StreamsBuilder()
    waiting = Joined.as_("j").with_grace_period(10)
    with pytest.raises(ValueError, match="KTable must be versioned"):
        builder.stream("a").join(builder.table("t"), first, joined=waiting)
    for history, message in ((5, "History retention must be at least grace period"), (10, None)):
        builder = StreamsBuilder()
        store = Materialized.as_(Stores.persistent_versioned_key_value_store("v", history))
        builder.stream("a").join(builder.table("t", materialized=store).filter(first), first, joined=waiting)
        if message is None:
            assert "j-Buffer" in build(builder).subtopologies[0].stores
        else:
            with pytest.raises(ValueError, match=message):
                builder.build()


def test_a_repartition_passes_records_without_key_only_where_a_join_below_has_results_for_them() -> None:
    def filters(join: str) -> list[type]:
        builder = StreamsBuilder()
        getattr(builder.stream("a").select_key(first), join)(builder.table("t"), first)
        nodes = [node for part in build(builder).subtopologies for node in part.nodes]
        return [type(n.supplier.get()) for n in nodes if isinstance(n, ProcessorSpec) and "FILTER" in n.name]

    assert filters("join") == [NullKeyFilter]
    assert filters("left_join") == [StreamMerge]


def as_text(*values: Any) -> str:
    return str(values[0])


TEXTS, NUMBERS = Consumed.with_(Serdes.string(), Serdes.string()), Consumed.with_(Serdes.long(), Serdes.string())


@pytest.mark.parametrize(
    ("join", "keys", "one", "other"),
    [
        (
            lambda b: b.stream("texts", TEXTS).join(b.stream("numbers", NUMBERS), first, WINDOWS),
            "keys",
            r"KSTREAM-SOURCE-0000000000 \(reads texts, created at .*test_stream_joins.py:\d+\) are of type str",
            r"KSTREAM-SOURCE-0000000001 \(reads numbers, created at .*test_stream_joins.py:\d+\) of type int",
        ),
        (
            lambda b: b.stream("numbers", NUMBERS).select_key(as_text).left_join(b.table("t", NUMBERS), first),
            "keys",
            r"KSTREAM-KEY-SELECT-0000000001 \(created at .*test_stream_joins.py:\d+\) are of type str",
            r"KTABLE-SOURCE-\d+ \(reads t, created at .*test_stream_joins.py:\d+\) of type int",
        ),
        (
            lambda b: b.table("texts", TEXTS).outer_join(b.table("numbers", NUMBERS), first),
            "keys",
            r"KTABLE-SOURCE-\d+ \(reads texts, .*\) are of type str",
            r"KTABLE-SOURCE-\d+ \(reads numbers, .*\) of type int",
        ),
        (
            lambda b: b.table("texts", TEXTS).join(b.table("numbers", NUMBERS), first, foreign_key_extractor=as_text),
            "foreign keys",
            r"KTABLE-SOURCE-\d+ \(reads texts, .*\) are of type str",
            r"KTABLE-SOURCE-\d+ \(reads numbers, .*\) of type int",
        ),
        (
            lambda b: b.stream("in", TEXTS).join(b.global_table("numbers", NUMBERS), first, key_selector=as_text),
            "selected keys",
            r"KSTREAM-SOURCE-\d+ \(reads in, .*\) are of type str",
            r"KTABLE-SOURCE-\d+ \(reads numbers, .*\) of type int",
        ),
    ],
)
def test_a_join_of_keys_that_are_never_equal_is_refused(join: Any, keys: str, one: str, other: str) -> None:
    expected = (
        rf"Join \(.*test_stream_joins.py:\d+\): the {keys} of {one}, and the keys of {other}, so no records would meet"
    )
    with pytest.raises(TypeError, match=expected):
        join(StreamsBuilder())


def test_keys_of_unknown_type_may_be_joined() -> None:
    builder = StreamsBuilder()
    texts = builder.stream("texts", TEXTS)
    texts.join(builder.table("defaults"), first)
    texts.select_key(first).join(builder.table("numbers", NUMBERS), first)
    texts.join(builder.global_table("global", NUMBERS), first, key_selector=first)


def test_a_join_side_with_the_default_serde_is_checked_before_the_first_record() -> None:
    builder = StreamsBuilder()
    numbers = builder.table("numbers", NUMBERS)
    builder.stream("defaults").filter(lambda key, value: True).join(numbers, first).to("out")
    topology = builder.build()
    refused = (
        r"KSTREAM-SOURCE-\d+, which reads topic numbers \(created at .*test_stream_joins.py:\d+\), has keys of "
        r"type int by its own serde, and KSTREAM-SOURCE-\d+, which reads topic defaults \(created at .*\), has keys "
        r"of type str by default.key.serde, so no records would meet"
    )
    with pytest.raises(TopologyError, match=refused):
        TopologyTestDriver(topology, defaults(Serdes.string()))
    with TopologyTestDriver(topology, defaults(Serdes.long())):
        pass


def test_windowed_keys_may_meet_keys_of_their_topic() -> None:
    """The keys of a windowed table are not those that its source reads."""
    builder = StreamsBuilder()
    windowed = WindowedSerdes.time_windowed(Serdes.string(), 10)
    counts = builder.stream("in", TEXTS).group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count()
    limits = builder.table("limits", Consumed.with_(key_serde=windowed, value_serde=Serdes.string()))
    counts.to_stream().join(limits, first).to("out", Produced.with_(value_serde=Serdes.long()))
    with TopologyTestDriver(builder.build(), defaults(Serdes.string())):
        pass


def defaults(key_serde: Serde) -> dict[str, Any]:
    return {"application.id": "app", "default.key.serde": key_serde, "default.value.serde": Serdes.string()}
