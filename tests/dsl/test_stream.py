"""KStream: names, serdes, processors with their stores, and the topics of `repartition()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Named, Repartitioned
from penstock.dsl.stream import KStream
from penstock.plan.subtopology import SinkSpec, SourceSpec
from penstock.processor.api import Processor, ProcessorSupplier
from penstock.processor.fixed_key import FixedKeyProcessor, FixedKeyProcessorSupplier, FixedKeyRecord
from penstock.record import Record
from penstock.serdes import Serde, Serdes
from penstock.state.api import StoreBuilder
from penstock.state.stores import Stores
from penstock.state.suppliers import KeyValueBytesStoreSupplier


class Pass(FixedKeyProcessor):
    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        self.context.forward(record)


def test_a_repartition_cuts_the_topology_in_two() -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned.as_("r").with_number_of_partitions(4)).to("out")
    built = builder.build().build("app")
    first, second = built.subtopologies
    assert first.sink_topics == second.source_topics == ("app-r-repartition",)
    assert built.repartition_topics["app-r-repartition"].partitions == 4
    assert [node.name for node in first.nodes][1:] == ["r-repartition-filter", "r-repartition-sink"]


def test_a_repartition_without_a_name_is_named_after_its_node() -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition()
    assert [node.name for part in builder.build().build("app").subtopologies for node in part.nodes] == [
        "KSTREAM-SOURCE-0000000000",
        "KSTREAM-FILTER-0000000003",
        "KSTREAM-SINK-0000000002",
        "KSTREAM-SOURCE-0000000004",
    ]
    assert list(builder.build().build("app").repartition_topics) == ["app-KSTREAM-REPARTITION-0000000001-repartition"]


def test_a_broadcast_is_a_topic_whose_readers_get_each_record() -> None:
    builder = StreamsBuilder()
    control = builder.stream("control").broadcast(Repartitioned.as_("rules").with_number_of_partitions(4))
    control.merge(builder.stream("in")).to("out")
    assert str(builder.build().describe()) == (
        """Topologies:
   Sub-topology: 0
    Source: KSTREAM-SOURCE-0000000000 (topics: [control])
      --> rules-broadcast-repartition-sink
    Sink: rules-broadcast-repartition-sink (topic: rules-broadcast-repartition)
      <-- KSTREAM-SOURCE-0000000000

  Sub-topology: 1
    Source: KSTREAM-SOURCE-0000000005 (topics: [in])
      --> KSTREAM-MERGE-0000000006
    Source: rules-broadcast-repartition-source (topics: [rules-broadcast-repartition])
      --> KSTREAM-MERGE-0000000006
    Processor: KSTREAM-MERGE-0000000006 (stores: [])
      --> KSTREAM-SINK-0000000007
      <-- rules-broadcast-repartition-source, KSTREAM-SOURCE-0000000005
    Sink: KSTREAM-SINK-0000000007 (topic: out)
      <-- KSTREAM-MERGE-0000000006

"""
    )
    assert builder.build().build("app").repartition_topics["app-rules-broadcast-repartition"].partitions == 4


def test_a_name_of_a_broadcast_does_not_rename_later_nodes() -> None:
    names = []
    for options in (Repartitioned.as_("b"), None):
        builder = StreamsBuilder()
        builder.stream("in").broadcast(options).to("out")
        _, second = builder.build().build("app").subtopologies
        names.append([node.name for node in second.nodes])
    assert names == [
        ["b-broadcast-repartition-source", "KSTREAM-SINK-0000000005"],
        ["KSTREAM-SOURCE-0000000004", "KSTREAM-SINK-0000000005"],
    ]
    assert list(builder.build().build("app").repartition_topics) == ["app-KSTREAM-BROADCAST-0000000001-repartition"]


def test_a_broadcast_has_its_own_partitioner() -> None:
    options = Repartitioned.as_("b").with_stream_partitioner(lambda topic, key, value, partitions: {0})
    with pytest.raises(ValueError, match=r"broadcast\(\) writes each record to every partition, so its options cannot"):
        StreamsBuilder().stream("in").broadcast(options)


def test_a_stream_is_counted_in_each_task_without_another_topic() -> None:
    builder = StreamsBuilder()
    builder.stream("in").select_key(lambda key, value: value).broadcast(Repartitioned.as_("b")).group_by_key().count()
    assert list(builder.build().build("app").repartition_topics) == ["app-b-broadcast-repartition"]


def test_a_repartition_keeps_the_serdes_of_the_stream_unless_it_is_given_others() -> None:
    builder = StreamsBuilder()
    key, value, other = Serdes.string(), Serdes.long(), Serdes.integer()
    stream = builder.stream("in", Consumed.with_(key_serde=key, value_serde=value))
    stream.repartition(Repartitioned.with_(value_serde=other, name="r")).to("out")
    nodes = [node for part in builder.build().build("app").subtopologies for node in part.nodes]
    serdes = {
        node.name: (node.key_serde, node.value_serde) for node in nodes if isinstance(node, SourceSpec | SinkSpec)
    }
    assert serdes["r-repartition-sink"] == serdes["r-repartition-source"] == (key, other)
    assert serdes["KSTREAM-SINK-0000000004"] == (key, other)


def test_a_topic_needs_a_partition() -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition(Repartitioned.with_(number_of_partitions=0))
    with pytest.raises(ValueError, match=r"Number of partitions must be at least 1\."):
        builder.build().build("app")


def test_nothing_is_repartitioned_after_a_repartition_or_a_processor_of_fixed_keys() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in").select_key(lambda k, v: v).repartition(Repartitioned.as_("r"))
    stream.process_values(Pass).group_by_key().count()
    assert list(builder.build().build("app").repartition_topics) == ["app-r-repartition"]


def test_a_supplier_of_fixed_key_processors_owns_stores_and_makes_new_processors() -> None:
    store = StoreBuilder(KeyValueBytesStoreSupplier("s", False))

    class Supplier(FixedKeyProcessorSupplier):
        def get(self) -> FixedKeyProcessor:
            return Pass()

        def stores(self) -> list[StoreBuilder]:
            return [store]

    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.process_values(Supplier(), named="p")
    (part,) = builder.build().build("app").subtopologies
    assert list(part.stores) == ["s"]
    single = Pass()
    with pytest.raises(ValueError, match="generates single reference"):
        stream.process_values(lambda: single)
    with pytest.raises(TypeError, match="where a FixedKeyProcessor was expected"):
        stream.process_values(ProcessorSupplier)  # type: ignore[arg-type]  # the mistake that is tested


KEY, VALUE = Serdes.string(), Serdes.integer()


class Drop(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        pass


def swap(key: Any, value: Any) -> tuple[Any, Any]:
    return value, key


def test_naming_one_operator_does_not_rename_the_next() -> None:
    def names(**named: Any) -> list[str]:
        builder = StreamsBuilder()
        builder.stream("in").filter(lambda k, v: True, **named).peek(lambda k, v: None)
        (part,) = builder.build().build("app").subtopologies
        return [node.name for node in part.nodes]

    assert names() == ["KSTREAM-SOURCE-0000000000", "KSTREAM-FILTER-0000000001", "KSTREAM-PEEK-0000000002"]
    assert names(named="mine") == ["KSTREAM-SOURCE-0000000000", "mine", "KSTREAM-PEEK-0000000002"]
    assert names(named=Named.as_("mine")) == names(named="mine")


INHERITANCE: list[tuple[str, Callable[[KStream], KStream], Serde | None, Serde | None]] = [
    ("filter", lambda s: s.filter(lambda k, v: True), KEY, VALUE),
    ("filter_not", lambda s: s.filter_not(lambda k, v: True), KEY, VALUE),
    ("peek", lambda s: s.peek(lambda k, v: None), KEY, VALUE),
    ("map_values", lambda s: s.map_values(lambda v: v), KEY, None),
    ("flat_map_values", lambda s: s.flat_map_values(list), KEY, None),
    ("select_key", lambda s: s.select_key(lambda k, v: v), None, VALUE),
    ("map", lambda s: s.map(swap), None, None),
    ("flat_map", lambda s: s.flat_map(lambda k, v: []), None, None),
    ("process", lambda s: s.process(Drop), None, None),
    ("merge", lambda s: s.merge(s.map_values(len)), KEY, None),
    ("to_stream", lambda s: s.group_by_key().reduce(lambda a, b: a).to_stream(), KEY, VALUE),
]


@pytest.mark.parametrize(("name", "change", "key", "value"), INHERITANCE, ids=[row[0] for row in INHERITANCE])
def test_serdes_are_inherited_where_keys_and_values_are(
    name: str, change: Callable[[KStream], KStream], key: Serde | None, value: Serde | None
) -> None:
    builder = StreamsBuilder()
    change(builder.stream("in", Consumed.with_(key_serde=KEY, value_serde=VALUE))).to("out")
    parts = builder.build().build("app").subtopologies
    (sink,) = (node for part in parts for node in part.nodes if isinstance(node, SinkSpec))
    assert (sink.key_serde, sink.value_serde) == (key, value)


def test_a_processor_is_connected_to_stores_by_name_and_owns_others() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), KEY, VALUE))
    builder.stream("in").process(Drop, "s", named="p").process(Drop, "s")
    (part,) = builder.build().build("app").subtopologies
    assert list(part.stores) == ["s"]
    assert [node.name for node in part.nodes] == ["KSTREAM-SOURCE-0000000000", "p", "KSTREAM-PROCESSOR-0000000001"]


def test_a_function_of_the_wrong_form_is_refused_when_the_operator_is_called() -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TypeError, match=r"predicate\(key, value\)"):
        stream.filter(lambda v: True)  # type: ignore[arg-type, misc]  # the mistake that is tested
    with pytest.raises(TypeError, match=r"topic\(key, value, metadata\)"):
        stream.to(lambda k, v: "out")  # type: ignore[arg-type, misc]  # the mistake that is tested


def test_merging_with_what_is_no_stream_is_refused() -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TypeError, match="Expected a KStream"):
        stream.merge("other")  # type: ignore[arg-type]  # the mistake that is tested


@pytest.mark.parametrize("topic", [None, 5])
def test_the_target_is_the_name_of_a_topic_or_a_function(topic: Any) -> None:
    stream = StreamsBuilder().stream("in")
    with pytest.raises(TypeError, match=rf"Expected the name of a topic or a function .* for to\(\), got {topic}"):
        stream.to(topic)
