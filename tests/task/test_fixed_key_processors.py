"""Fixed-key processors among operators that work on columns: `forward` is a call, which returns or raises after the
children have processed the record, and both executions give the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    Branched,
    FixedKeyProcessor,
    FixedKeyProcessorContext,
    FixedKeyRecord,
    KStream,
    PunctuationType,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    StreamsConfig,
)
from penstock.errors import StreamsError
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
from penstock.plan.subtopology import TaskId
from penstock.record import Headers, RecordBatch
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask
from tests.task.topologies import LONG, STRING, AnyTopic, batch_of, sent, task_of

EXECUTIONS = ("auto", "record")
AnyRecord = FixedKeyRecord[Any, Any]


def _refuse(value: str) -> str:
    if "bad" in value:
        raise ValueError(f"refused {value}")
    return value


# ---------------------------------------- forward is a call


class ReusesItsValue(FixedKeyProcessor):
    """Forwards one list, which grows."""

    def init(self, context: FixedKeyProcessorContext) -> None:
        super().init(context)
        self.seen: list[str] = []

    def process(self, record: AnyRecord) -> None:
        self.seen.append(record.value)
        self.context.forward(record.with_value(self.seen))


class CatchesErrorsOfItsChildren(FixedKeyProcessor):
    """Forwards something else where a child fails."""

    def process(self, record: AnyRecord) -> None:
        try:
            self.context.forward(record.with_value([record.value]))
        except Exception as error:
            self.context.forward(record.with_value([type(error).__name__]))


class SendsBetweenForwards(FixedKeyProcessor):
    """Sends a record to the topic of the sink, between two that it forwards."""

    def process(self, record: AnyRecord) -> None:
        self.context.forward(record.with_value([record.value]))
        self.context.send("out", record.key, "sent")
        self.context.forward(record.with_value([record.value, "again"]))


class SchedulesLate(FixedKeyProcessor):
    """Schedules at the second record a punctuation that forwards once."""

    def init(self, context: FixedKeyProcessorContext) -> None:
        super().init(context)
        self.records = 0

    def process(self, record: AnyRecord) -> None:
        self.records += 1
        if self.records == 2:
            self.context.schedule(1000, PunctuationType.STREAM_TIME, lambda _: self.context.forward(again))
            again = record.with_value(["due"])
        self.context.forward(record.with_value([record.value]))


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(
    ("processor", "values"),
    [
        (ReusesItsValue, ["a", "a,b", "a,b,c"]),
        (SendsBetweenForwards, ["a", "sent", "a,again", "b", "sent", "b,again", "c", "sent", "c,again"]),
        (SchedulesLate, ["a", "b", "due", "c"]),
    ],
)
def test_children_have_processed_a_record_when_forward_returns(
    processor: Callable[[], FixedKeyProcessor], values: list[str], execution: str
) -> None:
    builder = StreamsBuilder()
    builder.stream("in").process_values(processor).filter(lambda key, value: True).map_values(",".join).to("out")
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, batch_of(*(("k", letter, time) for time, letter in enumerate("abc"))))
    task.process()
    assert [value for _, _, value, _ in sent(task)] == values


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_processor_may_catch_what_its_children_raise(execution: str) -> None:
    builder = StreamsBuilder()
    forwarded = builder.stream("in").process_values(CatchesErrorsOfItsChildren)
    forwarded.map_values(",".join).map_values(_refuse).to("out")
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, batch_of(("k", "a", 1), ("k", "bad", 2), ("k", "c", 3)))
    task.process()
    assert [value for _, _, value, _ in sent(task)] == ["a", "ProcessingError", "c"]


# ---------------------------------------- random programs


class Several(FixedKeyProcessor):
    """Forwards none, one or two records, with other times and headers."""

    def process(self, record: AnyRecord) -> None:
        for number in range(len(record.value) % 3):
            other = record.with_value(f"{record.value}{number}").with_headers((*record.headers, ("n", b"%d" % number)))
            self.context.forward(other.with_timestamp(record.timestamp + number))


class Shows(FixedKeyProcessor):
    """Shows where the record came from and the stream time, and ticks with stream time."""

    def init(self, context: FixedKeyProcessorContext) -> None:
        super().init(context)
        self.last: AnyRecord | None = None
        context.schedule(7, PunctuationType.STREAM_TIME, self.tick)

    def process(self, record: AnyRecord) -> None:
        self.last = record
        context = self.context
        context.forward(record.with_value(f"{record.value}@{context.current_stream_time_ms()}/{context.offset}"))

    def tick(self, time: int) -> None:
        if self.last is not None:
            self.context.forward(self.last.with_value(f"tick{time}").with_timestamp(time))


class Fails(FixedKeyProcessor):
    """Forwards each record, then fails on some."""

    def process(self, record: AnyRecord) -> None:
        self.context.forward(record)
        self.context.forward(record.with_value(f"{_refuse(record.value)}+"))


class Counts(FixedKeyProcessor):
    """Counts in a store, which another processor may share, and asks for commits."""

    def __init__(self, store: str) -> None:
        self._name = store

    def process(self, record: AnyRecord) -> None:
        store = self.context.get_state_store(self._name)
        count = (store.get(record.key) or 0) + 1
        store.put(record.key, count)
        self.context.commit()
        self.context.forward(record.with_value(f"{record.value}#{count}"))


class Chooses(FixedKeyProcessor):
    """Forwards to one of two children, or to both."""

    def __init__(self, children: Sequence[str]) -> None:
        self._children = children

    def process(self, record: AnyRecord) -> None:
        if "a" in record.value:
            self.context.forward(record)
        for child in reversed(self._children):
            if len(record.value) % 2 == self._children.index(child):
                self.context.forward(record, child)


class Sends(FixedKeyProcessor):
    """Sends a record to a topic of the sinks before the one that it forwards."""

    def process(self, record: AnyRecord) -> None:
        self.context.send("out0", record.key, f"{record.value}s")
        self.context.forward(record)


class Program:
    """A topology, drawn step by step."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw
        self._builder = StreamsBuilder()
        self._streams: list[KStream] = [self._builder.stream("in")]
        self._stores: list[str] = []

    def drawn(self) -> StreamsBuilder:
        steps = {
            "map_values": lambda stream: [stream.map_values(lambda value: f"{_refuse(value)}m")],
            "filter": lambda stream: [stream.filter(lambda key, value: len(value) < 6)],
            "flat_map_values": lambda stream: [stream.flat_map_values(lambda value: [value, f"{value}f"])],
            "count": lambda stream: [stream.group_by_key().count().to_stream().map_values(lambda count: "c" * count)],
            "merge": lambda stream: [stream.merge(self._one(self._streams))],
            "split": self._split,
            **{each.__name__: self._processed_by(each) for each in (Several, Shows, Fails, Sends)},
            "counts": self._counted,
            "chooses": self._chosen,
        }
        for _ in range(self._draw(st.integers(1, 7))):
            self._streams += steps[self._one([*steps])](self._one(self._streams))
        for number, stream in enumerate(self._streams):
            if self._draw(st.booleans()) or number == len(self._streams) - 1:
                stream.to(f"out{number % 3}")
        return self._builder

    def _one(self, choices: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(choices))

    @staticmethod
    def _processed_by(processor: Callable[[], FixedKeyProcessor]) -> Callable[[KStream], list[KStream]]:
        return lambda stream: [stream.process_values(processor)]

    def _split(self, stream: KStream) -> list[KStream]:
        name = f"split{len(self._streams)}-"
        split = stream.split(name).branch(lambda key, value: "a" in value, Branched.as_("a"))
        return [*split.default_branch(Branched.as_("b")).values()]

    def _counted(self, stream: KStream) -> list[KStream]:
        store = self._one([*self._stores, f"store{len(self._stores)}"])
        if store not in self._stores:
            self._stores.append(store)
            caching = self._draw(st.booleans())
            made: StoreBuilder = Stores.key_value_store_builder(Stores.in_memory_key_value_store(store), STRING, LONG)
            self._builder.add_state_store(made.with_caching_enabled() if caching else made)
        return [stream.process_values(lambda: Counts(store), store)]

    def _chosen(self, stream: KStream) -> list[KStream]:
        names = [f"{side}{len(self._streams)}" for side in ("left", "right")]
        chosen = stream.process_values(lambda: Chooses(names))
        return [chosen.map_values(f"{{}}{name[0]}".format, named=name) for name in names]


@st.composite
def programs(draw: st.DrawFn) -> StreamsBuilder:
    return Program(draw).drawn()


ROWS = st.lists(
    st.tuples(
        st.sampled_from("kl"),
        st.sampled_from(["a", "ab", "b", "bbb", "bad"]),
        st.integers(0, 30),
        st.sampled_from([(), (), (("h", b"1"),)]),
    ),
    max_size=10,
)
Rows = list[tuple[str, str, int, Headers]]


def outcome(builder: StreamsBuilder, rows: Rows, **settings: Any) -> tuple[Any, ...]:
    """Return what a task sends, its changes and checkpoint, and what it drops; only the error if one ends it, since
    nothing else of such a task remains."""
    (part,) = builder.build().build("test").subtopologies
    serdes = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
    config = StreamsConfig({"application.id": "test", **serdes, **settings}, environment={})
    task = StreamTask(part, TaskId(0, 0), config, MemoryBase(), AnyTopic(1))
    task.initialize()
    records = [
        (key.encode(), value.encode(), time, row, headers) for row, (key, value, time, headers) in enumerate(rows)
    ]
    task.add_records("in", 0, RecordBatch.of(records))
    try:
        task.process()
        task.flush()
    except StreamsError as error:
        return (str(error),)
    return list(task.drain_in_order()), task.changes(), task.checkpoint(), task.dropped_records, task.commit_requested


@given(programs(), ROWS, st.sampled_from([0, 1 << 20]), st.booleans())
def test_fixed_key_processors_among_columns_give_what_records_give(
    builder: StreamsBuilder, rows: Rows, cache_bytes: int, continues: bool
) -> None:
    settings: dict[str, Any] = {"statestore.cache.max.bytes": cache_bytes}
    if continues:
        settings["processing.exception.handler"] = LogAndContinueProcessingExceptionHandler
    by_column = outcome(builder, rows, **settings, **{"penstock.execution": "auto"})
    assert by_column == outcome(builder, rows, **settings, **{"penstock.execution": "record"})
