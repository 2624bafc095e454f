"""deduplicate_by_key and deduplicate_by_key_value: their nodes, names, stores and serdes, and mistakes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import Consumed, Deduplicated, KStream, Materialized, Serdes, StreamsBuilder, Topology
from penstock.errors import TopologyError
from penstock.state.api import StoreBuilder
from penstock.state.suppliers import WindowBytesStoreSupplier
from penstock.testing import TopologyTestDriver

TEXT, LONG, JSON = Serdes.string(), Serdes.long(), Serdes.json()


def source(builder: StreamsBuilder) -> KStream[str, str]:
    return builder.stream("in", Consumed.with_(TEXT, TEXT))


def described(shape: Callable[[KStream], KStream]) -> str:
    return str(built(shape).describe())


def built(shape: Callable[[KStream], KStream]) -> Topology:
    builder = StreamsBuilder()
    shape(source(builder)).to("out")
    return builder.build()


def store_of(shape: Callable[[KStream], KStream], name: str) -> StoreBuilder:
    return built(shape).state_store(name)


def test_without_names_node_and_store_have_generated_ones() -> None:
    assert described(lambda stream: stream.deduplicate_by_key(5)) == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: KSTREAM-SOURCE-0000000000 (topics: [in])\n"
        "      --> KSTREAM-DEDUPLICATE-0000000001\n"
        "    Processor: KSTREAM-DEDUPLICATE-0000000001 (stores: [KSTREAM-DEDUPLICATE-STATE-STORE-0000000002])\n"
        "      --> KSTREAM-SINK-0000000003\n"
        "      <-- KSTREAM-SOURCE-0000000000\n"
        "    Sink: KSTREAM-SINK-0000000003 (topic: out)\n"
        "      <-- KSTREAM-DEDUPLICATE-0000000001\n\n"
    )


@pytest.mark.parametrize(
    ("options", "node", "store"),
    [
        (Deduplicated.as_("once"), "once", "once"),
        (Deduplicated.as_("once").with_store_name("seen"), "once", "seen"),
        (Deduplicated().with_store_name("seen"), "KSTREAM-DEDUPLICATE-0000000001", "seen"),
    ],
)
def test_names_are_those_of_the_user_and_do_not_rename_later_nodes(
    options: Deduplicated, node: str, store: str
) -> None:
    text = described(lambda stream: stream.deduplicate_by_key(5, options))
    assert f"Processor: {node} (stores: [{store}])" in text
    assert "Sink: KSTREAM-SINK-0000000003" in text


@pytest.mark.parametrize(
    ("options", "topic"),
    [(Deduplicated(), "KSTREAM-DEDUPLICATE-0000000002-repartition"), (Deduplicated.as_("once"), "once-repartition")],
)
def test_a_stream_with_other_keys_is_repartitioned_once(options: Deduplicated, topic: str) -> None:
    def by_value(stream: KStream[str, str]) -> KStream:
        unique = stream.select_key(lambda key, value: value).deduplicate_by_key(5, options)
        return unique.group_by_key().count(Materialized.as_("counts")).to_stream().map_values(str)

    topology = built(by_value).build("app")
    assert list(topology.repartition_topics) == [f"app-{topic}"]


def test_records_without_a_key_pass_through_the_repartition() -> None:
    def by_value(stream: KStream[str, str]) -> KStream:
        by_value = stream.select_key(lambda key, value: value if value > "b" else None)
        return by_value.deduplicate_by_key(5, Deduplicated.with_(key_serde=TEXT))

    with TopologyTestDriver(built(by_value)) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_value_list(["a", "a", "c", "c"])
        found = driver.create_output_topic("out", TEXT, TEXT).read_key_values_to_list()
    assert found == [(None, "a"), (None, "a"), ("c", "c")]


@pytest.mark.parametrize("interval", [90_000, timedelta(seconds=90)])
def test_the_store_keeps_the_interval_with_both_ends(interval: Any) -> None:
    store = store_of(lambda stream: stream.deduplicate_by_key(interval, Deduplicated.as_("once")), "once")
    assert store.supplier == WindowBytesStoreSupplier("once", 90_001, 90_001, retain_duplicates=False, in_memory=None)
    topology = built(lambda stream: stream.deduplicate_by_key(interval, Deduplicated.as_("once"))).build("app")
    topic, config = topology.subtopologies[0].changelogs["once"]
    assert topic == "app-once-changelog"
    assert config["cleanup.policy"] == "compact,delete"


def test_the_store_can_be_queried_by_key_or_by_key_and_id() -> None:
    builder = StreamsBuilder()
    stream = source(builder)
    stream.deduplicate_by_key(100, Deduplicated.as_("keys")).to("out")
    ids = Deduplicated(id_serde=LONG, name="ids")
    stream.deduplicate_by_key_value(lambda key, value: len(value), 100, ids).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("k", "four", 7)
        by_key, by_id = driver.get_window_store("keys"), driver.get_window_store("ids")
        assert by_key is not None
        assert by_id is not None
        with by_key.fetch("k", 0, 100) as times:
            assert list(times) == [(7, True)]
        assert by_id.fetch(("k", 4), 7) is True
        assert by_id.fetch(("k", 5), 7) is None


def test_the_result_has_the_serdes_of_the_stream_or_of_the_options() -> None:
    stream = source(StreamsBuilder())
    unique = stream.deduplicate_by_key(5)
    assert (unique.key_serde, unique.value_serde) == (TEXT, TEXT)
    mapped = stream.map(lambda key, value: (key, value)).deduplicate_by_key(5, Deduplicated.with_(JSON, LONG))
    assert (mapped.key_serde, mapped.value_serde) == (JSON, LONG)


def annotated(key: int, value: str) -> str:
    return value[:1]


def test_the_annotation_of_the_mapper_selects_the_serde_of_ids_whatever_the_defaults_are() -> None:
    builder = StreamsBuilder()
    builder.stream("in").deduplicate_by_key_value(annotated, 5).to("out")
    with TopologyTestDriver(builder.build(), {"default.key.serde": LONG, "default.value.serde": TEXT}) as driver:
        driver.create_input_topic("in", LONG, TEXT).pipe_key_value_list([(1, "a"), (1, "ab"), (1, "c")])
        assert driver.create_output_topic("out", LONG, TEXT).read_values_to_list() == ["a", "c"]


def test_the_default_serde_of_keys_is_used_where_none_is_named() -> None:
    builder = StreamsBuilder()
    ids = Deduplicated(id_serde=TEXT)
    builder.stream("in").deduplicate_by_key_value(lambda key, value: value, 5, ids).to("out")
    with TopologyTestDriver(builder.build(), {"default.key.serde": LONG, "default.value.serde": TEXT}) as driver:
        driver.create_input_topic("in", LONG, TEXT).pipe_key_value_list([(1, "a"), (1, "a"), (2, "a")])
        assert driver.create_output_topic("out", LONG, TEXT).read_key_values_to_list() == [(1, "a"), (2, "a")]


def length(key: str, value: str) -> int:
    return len(value)


MISTAKES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda s: s.deduplicate_by_key(-1), ValueError, "interval of deduplicate_by_key (FILE) must not be negative"),
    (lambda s: s.deduplicate_by_key(1.5), TypeError, "Expected the interval as a timedelta or a whole number"),
    (lambda s: s.deduplicate_by_key(5, "once"), TypeError, "write Deduplicated.as_('once')"),
    (lambda s: s.deduplicate_by_key(5, TEXT), TypeError, "write Deduplicated.with_(key_serde, value_serde)"),
    (
        lambda s: s.deduplicate_by_key(5, Deduplicated(id_serde=TEXT)),
        TypeError,
        "deduplicate_by_key (FILE) has no ids, but Deduplicated has the id_serde",
    ),
    (
        lambda s: s.deduplicate_by_key_value(lambda key, value: value, 5),
        TypeError,
        "deduplicate_by_key_value (FILE) has no serde of ids: name one, such as Deduplicated(id_serde=",
    ),
    (
        lambda s: s.deduplicate_by_key_value(length, 5),
        TypeError,
        "the annotation int of length selects no serde, so name one, such as Deduplicated(id_serde=Serdes.long())",
    ),
    (lambda s: s.deduplicate_by_key_value(lambda value: value, 5), TypeError, "cannot be called as mapper(key, value)"),
    (lambda s: s.deduplicate_by_key(5, Deduplicated.with_(LONG)), TypeError, "the keys are of type str, but LongSerde"),
    (lambda s: s.deduplicateByKey(5), AttributeError, "write deduplicate_by_key"),
]


@pytest.mark.parametrize(("wrong", "error", "told"), MISTAKES)
def test_a_mistake_is_refused_with_what_to_write(
    wrong: Callable[[Any], object], error: type[Exception], told: str
) -> None:
    with pytest.raises(error) as refused:
        wrong(source(StreamsBuilder()))
    before, _, after = told.partition("FILE")
    assert before in str(refused.value)
    assert after in str(refused.value)
    assert error is not ValueError or __file__ in str(refused.value)


def test_a_store_of_the_same_name_is_refused() -> None:
    builder = StreamsBuilder()
    for _ in range(2):
        source(builder).deduplicate_by_key(5, Deduplicated().with_store_name("seen")).to("out")
    with pytest.raises(TopologyError, match="seen"):
        builder.build()
