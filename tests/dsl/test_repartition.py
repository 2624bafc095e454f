"""`repartition()` and what keeps keys: topic, nodes, serdes, numbers of partitions."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Consumed, Repartitioned
from penstock.plan.subtopology import SinkSpec, SourceSpec
from penstock.processor.api import ProcessorSupplier
from penstock.processor.fixed_key import FixedKeyProcessor, FixedKeyProcessorSupplier, FixedKeyRecord
from penstock.serdes import Serdes
from penstock.state.api import StoreBuilder
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
