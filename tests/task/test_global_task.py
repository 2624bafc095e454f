"""Global stores: who writes them, who reads them, and what their processors may not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsError,
    Topology,
)
from penstock.errors import UnsupportedOperationError
from penstock.testing import TopologyTestDriver
from penstock.windows import SessionWindow, Windowed

TEXT = Serdes.string()
CONFIG = {"default.key.serde": TEXT, "default.value.serde": TEXT}
STORE = Stores.key_value_store_builder(Stores.in_memory_key_value_store("everywhere"), TEXT, TEXT)


class Keep(Processor):
    """Writes each record to the global store."""

    def process(self, record: Record[Any, Any]) -> None:
        self.context.get_state_store("everywhere").put(record.key, record.value)


class Call(Processor):
    """Calls a function with its context for each record."""

    def __init__(self, function: Callable[[ProcessorContext], object]) -> None:
        self._function = function

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record.with_value(str(self._function(self.context))))


def _topology(function: Callable[[ProcessorContext], object]) -> Topology:
    topology = Topology().add_source("source", "in").add_processor("reader", lambda: Call(function), "source")
    topology.add_sink("sink", "out", "reader")
    return topology.add_global_store(STORE, "global-source", "global", "keeper", Keep)


def _driver(topology: Topology) -> TopologyTestDriver:
    return TopologyTestDriver(topology, CONFIG, 0)


def test_every_processor_reads_a_global_store_without_being_connected() -> None:
    with _driver(_topology(lambda context: context.get_state_store("everywhere").get("a"))) as driver:
        driver.create_input_topic("global", TEXT, TEXT).pipe_input("a", "known", 1)
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("x", "?", 2)
        assert driver.create_output_topic("out", TEXT, TEXT).read_value() == "known"


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.put("a", "b"),
        lambda store: store.put_if_absent("a", "b"),
        lambda store: store.put_all([("a", "b")]),
        lambda store: store.delete("a"),
        lambda store: store.clear(),
        lambda store: store.flush(),
        lambda store: store.close(),
    ],
)
def test_only_its_own_processor_writes_a_global_store(write: Callable[[Any], object]) -> None:
    with _driver(_topology(lambda context: write(context.get_state_store("everywhere")))) as driver:
        with pytest.raises(StreamsError) as caught:
            driver.create_input_topic("in", TEXT, TEXT).pipe_input("x", "?", 2)
        assert isinstance(caught.value.__cause__, UnsupportedOperationError)
        assert str(caught.value.__cause__) == "Global store is read only"


def test_what_a_task_sends_to_the_topic_of_a_global_store_arrives_there() -> None:
    topology = _topology(lambda context: None)
    topology.add_sink("feedback", "global", "source")
    with _driver(topology) as driver:
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("a", "from the task", 1)
        store = driver.get_key_value_store("everywhere")
        assert store is not None
        assert store.get("a") == "from the task"


class Schedule(Keep):
    """Schedules, which a processor of a global store cannot."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(1, PunctuationType.WALL_CLOCK_TIME, lambda now: None)


def test_a_processor_of_a_global_store_cannot_schedule() -> None:
    topology = Topology().add_global_store(STORE, "global-source", "global", "keeper", Schedule)
    with pytest.raises(StreamsError, match="failed to initialize processor keeper") as caught:
        _driver(topology)
    assert isinstance(caught.value.__cause__, UnsupportedOperationError)


WINDOWS = Stores.window_store_builder(Stores.in_memory_window_store("s", 1000, 10, False), TEXT, TEXT)
SESSIONS = Stores.session_store_builder(Stores.in_memory_session_store("s", 1000), TEXT, TEXT)
VERSIONS = Stores.versioned_key_value_store_builder(Stores.persistent_versioned_key_value_store("s", 1000), TEXT, TEXT)


@pytest.mark.parametrize(
    ("builder", "put", "get"),
    [
        (WINDOWS, lambda store: store.put("a", "b", 5), lambda store: store.fetch("a", 5)),
        (
            SESSIONS,
            lambda store: store.put(Windowed("a", SessionWindow(1, 5)), "b"),
            lambda store: store.fetch_session("a", 1, 5),
        ),
        (VERSIONS, lambda store: store.put("a", "b", 5), lambda store: store.get("a").value),
    ],
)
def test_stores_of_other_kinds_can_be_global_too(
    builder: StoreBuilder, put: Callable[[Any], object], get: Callable[[Any], object]
) -> None:
    def read_and_try_to_write(context: ProcessorContext) -> object:
        store = context.get_state_store("s")
        with pytest.raises(UnsupportedOperationError):
            put(store)
        return get(store)

    topology = Topology().add_source("source", "in")
    topology.add_processor("reader", lambda: Call(read_and_try_to_write), "source").add_sink("sink", "out", "reader")
    keeper = "global-source", "global", "keeper"
    topology.add_global_store(builder, *keeper, lambda: Write(put))
    with _driver(topology) as driver:
        driver.create_input_topic("global", TEXT, TEXT).pipe_input("x", "?", 5)
        driver.create_input_topic("in", TEXT, TEXT).pipe_input("x", "?", 6)
        assert driver.create_output_topic("out", TEXT, TEXT).read_value() == "b"


class Write(Processor):
    """Calls a function with its store for each record."""

    def __init__(self, put: Callable[[Any], object]) -> None:
        self._put = put

    def process(self, record: Record[Any, Any]) -> None:
        self._put(self.context.get_state_store("s"))
