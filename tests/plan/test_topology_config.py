"""What a topology takes from the configuration while it is built: explicit names, a wrapper, overrides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock import (
    FixedKeyProcessor,
    FixedKeyProcessorSupplier,
    FixedKeyRecord,
    Grouped,
    Materialized,
    Named,
    Processor,
    ProcessorContext,
    ProcessorSupplier,
    Record,
    Serdes,
    StoreBuilder,
    StreamsBuilder,
    Topology,
    TopologyConfig,
)
from penstock.errors import ConfigError, TopologyError
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
from penstock.processor.wrapper import ProcessorWrapper
from penstock.testing import TopologyTestDriver

TEXT = Serdes.string()
SERDES = {"default.key.serde": TEXT, "default.value.serde": TEXT}
EXPLICIT = {"ensure.explicit.internal.resource.naming": True}


def test_generated_names_are_refused_where_the_config_asks_for_explicit_ones() -> None:
    builder = StreamsBuilder(TopologyConfig(EXPLICIT))
    builder.stream("in").group_by(lambda key, value: value).count()
    with pytest.raises(TopologyError) as caught:
        builder.build()
    assert str(caught.value) == (
        "Invalid topology: "
        "Following changelog topic(s) has not been named: KSTREAM-AGGREGATE-STATE-STORE-0000000002-changelog\n"
        "Following state store(s) has not been named: KSTREAM-AGGREGATE-STATE-STORE-0000000002\n"
        "Following repartition topic(s) has not been named: KSTREAM-AGGREGATE-STATE-STORE-0000000002-repartition\n"
    )


def test_explicit_names_satisfy_the_config() -> None:
    builder = StreamsBuilder(TopologyConfig(EXPLICIT))
    grouped = builder.stream("in").group_by(lambda key, value: value, Grouped.as_("by-value"))
    grouped.count(Materialized.as_("counts"))
    assert builder.build().build("app").repartition_topics


def test_generated_names_are_refused_only_by_a_topology_config() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda key, value: value).count()
    builder.build(EXPLICIT)


class Shouting(Processor):
    """Hands on upper-case values of what another processor forwards to it; counts its own records."""

    def __init__(self, inner: Processor, seen: list[Any]) -> None:
        self._inner, self._seen = inner, seen

    def init(self, context: ProcessorContext) -> None:
        self._inner.init(context)

    def process(self, record: Record[Any, Any]) -> None:
        self._seen.append(record.value)
        self._inner.process(record)


class WrappedSupplier(ProcessorSupplier):
    """Makes processors that look on."""

    def __init__(self, inner: ProcessorSupplier, seen: list[Any]) -> None:
        self._inner, self._seen = inner, seen

    def get(self) -> Processor:
        return Shouting(self._inner.get(), self._seen)

    def stores(self) -> tuple[StoreBuilder, ...]:
        return tuple(self._inner.stores())


class LookingOn(ProcessorWrapper):
    """Remembers each processor by name with the values that it takes."""

    def __init__(self) -> None:
        self.seen: dict[str, list[Any]] = {}
        self.fixed: list[str] = []
        self.configured: Mapping[str, Any] = {}

    def configure(self, config: Mapping[str, Any]) -> None:
        self.configured = config

    def wrap_processor_supplier(self, processor_name: str, supplier: ProcessorSupplier) -> ProcessorSupplier:
        return WrappedSupplier(supplier, self.seen.setdefault(processor_name, []))

    def wrap_fixed_key_processor_supplier(
        self, processor_name: str, supplier: FixedKeyProcessorSupplier
    ) -> FixedKeyProcessorSupplier:
        self.fixed.append(processor_name)
        return supplier


class Pass(FixedKeyProcessor):
    """Hands on every record."""

    def process(self, record: FixedKeyRecord[Any, Any]) -> None:
        self.context.forward(record)


def test_a_wrapper_sees_the_processors_of_the_dsl_and_those_of_users() -> None:
    wrapper = LookingOn()
    builder = StreamsBuilder(TopologyConfig({"processor.wrapper.class": wrapper, "application.id": "app"}))
    stream = builder.stream("in").map_values(str.upper, Named("upper")).process_values(Pass, named=Named("fixed"))
    stream.group_by_key().count(Materialized.as_("counts"), named="count").to_stream(named="stream")
    with TopologyTestDriver(builder.build(), SERDES) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x")
        store = driver.get_key_value_store("counts")
        assert store is not None
        assert store.get("a") == 1
    assert wrapper.seen["upper"] == ["x"]
    assert wrapper.seen["count"] == ["X"]
    assert set(wrapper.seen) == {"upper", "count", "stream"}
    assert wrapper.fixed == ["fixed"]
    assert wrapper.configured["application.id"] == "app"


def test_a_wrapper_sees_processors_added_by_hand() -> None:
    wrapper = LookingOn()
    topology = Topology(TopologyConfig({"processor.wrapper.class": wrapper}))
    topology.add_source("source", "in").add_processor("own", lambda: Shouting(Processor(), []), "source")
    assert list(wrapper.seen) == ["own"]


def test_what_is_no_wrapper_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected a ProcessorWrapper or its class"):
        TopologyConfig({"processor.wrapper.class": Pass})


def test_what_a_topology_sets_for_itself_goes_before_the_configuration() -> None:
    def refuse(value: str) -> str:
        raise KeyError(value)

    overrides = {"processing.exception.handler": LogAndContinueProcessingExceptionHandler}
    builder = StreamsBuilder(TopologyConfig(SERDES, overrides))
    builder.stream("in").map_values(refuse).to("out")
    with TopologyTestDriver(builder.build(), SERDES) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "x")
        assert driver.dropped_records() == 1


def test_only_some_keys_can_be_set_for_one_topology() -> None:
    with pytest.raises(ConfigError, match=r"^Configuration 'state.dir' cannot be set for one topology"):
        TopologyConfig(SERDES, {"state.dir": "elsewhere"})


def test_a_topology_may_set_keys_under_their_deprecated_names() -> None:
    builder = StreamsBuilder(TopologyConfig(SERDES, {"cache.max.bytes.buffering": 0, "default.dsl.store": "rocksDB"}))
    builder.table("in")
    assert builder.build().build("app").config_overrides == {
        "statestore.cache.max.bytes": 0,
        "dsl.store.suppliers.class": "rocksdb",
    }
