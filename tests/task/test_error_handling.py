"""What a task does with records that cannot be read, processed or written, column by column and record by record."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    BufferConfig,
    Consumed,
    Grouped,
    KStream,
    KTable,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    Serdes,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from penstock.errors import ProcessorStateError, SerializationError, StreamsError
from penstock.exception_handlers import (
    DeserializationExceptionHandler,
    ErrorHandlerContext,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    ProcessingExceptionHandler,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    SerializationExceptionOrigin,
)
from penstock.metrics.host_metrics import DEAD_LETTER_RECORDS
from penstock.plan.topology import Topology
from penstock.processor.api import Processor, ProcessorContext, PunctuationType
from penstock.processor.stateless import StreamFlatMapValues, StreamForeach, StreamMapValues, StreamPeek
from penstock.record import ConsumerRecord, FailedRecord, Headers, Record
from penstock.serdes import Serde
from penstock.task.stream_task import StreamTask
from penstock.testing import TopologyTestDriver
from tests.task.topologies import batch_of, sent, supplier, task_of

S = Serdes.string()
EXECUTIONS = ("auto", "record")


def no_pair(key: Any, value: Any) -> Any:
    return value


def no_topic(key: Any, value: Any, context: Any) -> Any:
    return None


CONTINUE = {"processing.exception.handler": LogAndContinueProcessingExceptionHandler}


class Refusing(Serde):
    """Texts, but none that says bad."""

    def serialize(self, topic: str, value: str, headers: Headers = ()) -> bytes:
        return _refuse(value).encode()

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> str:
        return _refuse(data.decode())


def _refuse(value: str) -> str:
    if value == "bad":
        raise SerializationError(f"refused {value}")
    return value


class Recorder:
    """Calls a function and remembers what it was called with."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.calls: list[Any] = []
        self._function = function

    def __call__(self, value: Any) -> Any:
        self.calls.append(value)
        return self._function(value)


def _chain(mapper: Callable[[Any], Any]) -> Topology:
    """Return source, words of each value, mapper, a further node, sink."""
    topology = Topology().add_source("source", "in")
    topology.add_processor("words", supplier(lambda: StreamFlatMapValues(lambda v: v.split(), False)), "source")
    topology.add_processor("map", supplier(lambda: StreamMapValues(mapper, False)), "words")
    topology.add_processor("peek", supplier(lambda: StreamPeek(lambda k, v: None)), "map")
    return topology.add_sink("sink", "out", "peek")


def _run(topology: Topology, execution: str, config: Mapping[str, Any], *values: str) -> StreamTask:
    task = task_of(topology, execution=execution, config=config)
    task.add_records("in", 0, batch_of(*(("k", value, time) for time, value in enumerate(values))))
    task.process()
    return task


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_failing_record_is_left_out_and_no_record_is_run_twice(execution: str) -> None:
    mapper = Recorder(_refuse)
    task = _run(_chain(mapper), execution, CONTINUE, "a b", "bad c bad", "bad", "d")
    assert [value for _, _, value, _ in sent(task)] == ["a", "b", "c", "d"]
    assert mapper.calls == ["a", "b", "bad", "c", "bad", "bad", "d"]
    assert task.dropped_records == {"map": 3}


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_without_a_users_own_handler_an_error_names_its_record(execution: str) -> None:
    with pytest.raises(StreamsError, match="processor=map, topic=in, partition=0, offset=1") as caught:
        _run(_chain(_refuse), execution, {}, "a", "bad", "c")
    assert isinstance(caught.value.__cause__, SerializationError)
    assert caught.value.failed_record == FailedRecord("map", "in", 0, 1, "'k'", "'bad'")


def test_an_error_keeps_only_the_beginning_of_its_record() -> None:
    with pytest.raises(StreamsError) as caught:
        _run(_chain(lambda value: 1 // 0), "record", {}, "a" * 1_000_000)
    assert caught.value.failed_record is not None
    assert caught.value.failed_record.value == f"'{'a' * 999}..."


class Judge(ProcessingExceptionHandler):
    """Records its calls, and returns the given answers."""

    def __init__(self, answer: Any) -> None:
        self.asked: list[tuple[ErrorHandlerContext, Record[Any, Any] | None, str]] = []
        self._answer = answer

    def handle_error(self, context: ErrorHandlerContext, record: Record[Any, Any] | None, error: Exception) -> Response:
        self.asked.append((context, record, str(error)))
        if isinstance(self._answer, Exception):
            raise self._answer
        answer: Response = self._answer
        return answer


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_handler_sees_the_record_of_the_failing_node_and_the_bytes_of_its_source(execution: str) -> None:
    judge = Judge(Response.resume())
    _run(_chain(_refuse), execution, {"processing.exception.handler": judge}, "a", "b bad")
    context = ErrorHandlerContext("in", 0, 1, (), "map", "0_0", 1, b"k", b"b bad")
    assert judge.asked == [(context, Record("k", "bad", 1), "refused bad")]


def test_a_handler_is_asked_for_one_record_after_the_other() -> None:
    judge = Judge(Response.resume())
    topology = _chain(_refuse)
    topology.add_processor("second", supplier(lambda: StreamMapValues(_refuse, False)), "words")
    _run(topology, "auto", {"processing.exception.handler": judge}, "bad", "bad")
    assert [(context.processor_node_id, context.offset) for context, _, _ in judge.asked] == [
        ("map", 0),
        ("second", 0),
        ("map", 1),
        ("second", 1),
    ]


@pytest.mark.parametrize(
    ("answer", "cause"), [(None, "Invalid ProcessingExceptionHandler response."), (KeyError("x"), "'x'")]
)
def test_a_handler_that_fails_itself_ends_the_task(answer: Any, cause: str) -> None:
    with pytest.raises(StreamsError, match="Fatal user code error in processing error callback") as caught:
        _run(_chain(_refuse), "auto", {"processing.exception.handler": Judge(answer)}, "bad")
    assert str(caught.value.__cause__) == cause


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_an_error_of_a_sink_is_its_parents_and_ends_what_that_forwards(execution: str) -> None:
    topology = Topology().add_source("source", "in")
    topology.add_processor("words", supplier(lambda: StreamFlatMapValues(lambda v: v.split(), False)), "source")
    topology.add_sink("sink", "out", "words", value_serde=Refusing())
    topology.add_sink("all", "all", "words")
    task = _run(topology, execution, CONTINUE, "a bad b", "c")
    assert [(topic, value) for topic, _, value, _ in sent(task)] == [
        ("out", "a"),
        ("all", "a"),
        ("out", "c"),
        ("all", "c"),
    ]
    assert task.dropped_records == {"words": 1}


class Drop(ProductionExceptionHandler):
    """Goes on, and remembers what could not be written."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ProducerRecord, SerializationExceptionOrigin]] = []

    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, error: Exception) -> Response:
        return Response.resume()

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        error: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        self.asked.append((context.processor_node_id, record, origin))
        return Response.resume()


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_what_cannot_be_written_is_left_out_if_the_handler_says_so(execution: str) -> None:
    drop = Drop()
    topology = Topology().add_source("source", "in").add_sink("sink", "out", "source", value_serde=Refusing())
    task = _run(topology, execution, {"production.exception.handler": drop}, "a", "bad", "b")
    assert [value for _, _, value, _ in sent(task)] == ["a", "b"]
    assert drop.asked == [("sink", ProducerRecord("out", "k", "bad", 1), SerializationExceptionOrigin.VALUE)]
    assert task.dropped_records == {"sink": 1}


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_what_cannot_be_read_goes_to_the_dead_letter_queue(execution: str) -> None:
    topology = Topology().add_source("source", "in", value_serde=Refusing()).add_sink("sink", "out", "source")
    config = {
        "deserialization.exception.handler": LogAndContinueExceptionHandler,
        "errors.dead.letter.queue.topic.name": "dead",
    }
    task = task_of(topology, execution=execution, config=config)
    task.add_records("in", 0, batch_of(("k", "a", 1), ("l", "bad", 2), ("m", "b", 3), headers=(("h", b"1"),)))
    assert task.process() == 2
    records = {record.topic: record for record in task.drain_in_order()}
    dead = records["dead"]
    assert (dead.key, dead.value, dead.timestamp) == (b"l", b"bad", 2)
    headers = dict(dead.headers)
    assert headers.pop("__streams.errors.stacktrace")
    assert headers == {
        "h": b"1",
        "__streams.errors.exception": b"penstock.errors.SerializationError",
        "__streams.errors.message": b"refused bad",
        "__streams.errors.topic": b"in",
        "__streams.errors.partition": b"0",
        "__streams.errors.offset": b"1",
    }
    assert task.dropped_records == {"source": 1}


class Ticking(Processor):
    """Fails in a punctuator, each time but the third."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._ticks = 0
        context.schedule(10, PunctuationType.STREAM_TIME, self._tick)

    def _tick(self, now: int) -> None:
        self._ticks += 1
        if self._ticks != 3:
            raise KeyError(now)
        self.context.forward(Record("tick", str(now), now))

    def process(self, record: Record[Any, Any]) -> None:
        self.context.forward(record)


def test_an_error_in_a_punctuator_is_handled_and_its_schedule_continues() -> None:
    judge = Judge(Response.resume([ProducerRecord("dead", None, b"tick", 7)]))
    topology = Topology().add_source("source", "in").add_processor("tick", supplier(Ticking), "source")
    topology.add_sink("sink", "out", "tick")
    task = task_of(topology, config={"processing.exception.handler": judge})
    task.add_records("in", 0, batch_of(("k", "a", 0), ("k", "b", 10), ("k", "c", 20)))
    task.process()
    assert [context for context, _, _ in judge.asked] == [
        ErrorHandlerContext(None, -1, -1, (), "tick", "0_0", time) for time in (0, 10)
    ]
    assert [(topic, value) for topic, _, value, _ in sent(task)] == [
        ("out", "a"),
        ("dead", "tick"),
        ("out", "b"),
        ("dead", "tick"),
        ("out", "c"),
        ("out", "20"),
    ]


@given(st.lists(st.lists(st.sampled_from(["a", "bad", "b"]), max_size=4).map(" ".join), max_size=6))
def test_dead_letters_stand_where_a_run_record_by_record_would_send_them(values: list[str]) -> None:
    def run(execution: str) -> list[tuple[str, str | None, str | None, int]]:
        topology = _chain(_refuse)
        topology.add_processor("all", supplier(lambda: StreamPeek(lambda k, v: None)), "words")
        topology.add_processor("again", supplier(lambda: StreamMapValues(_refuse, False)), "all")
        topology.add_processor("merged", supplier(lambda: StreamPeek(lambda k, v: None)), "again", "peek")
        topology.add_sink("also", "also", "merged")
        config = {**CONTINUE, "errors.dead.letter.queue.topic.name": "dead"}
        return sent(_run(topology, execution, config, *values))

    assert run("auto") == run("record")


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_an_action_at_the_end_of_a_chain_has_dead_letters_too(execution: str) -> None:
    topology = Topology().add_source("source", "in")
    topology.add_processor("end", supplier(lambda: StreamForeach(lambda k, v: _refuse(v))), "source")
    config = {**CONTINUE, "errors.dead.letter.queue.topic.name": "dead"}
    task = _run(topology, execution, config, "bad", "a", "bad")
    assert sent(task) == [("dead", "k", "bad", 0), ("dead", "k", "bad", 2)]
    assert task.take_measured()[0][DEAD_LETTER_RECORDS].number == 2
    assert DEAD_LETTER_RECORDS not in task.take_measured()[0]


class SourceJudge(DeserializationExceptionHandler):
    """Records what could not be read, and continues."""

    def __init__(self) -> None:
        self.asked: list[ConsumerRecord] = []

    def handle_error(self, context: ErrorHandlerContext, record: ConsumerRecord, error: Exception) -> Response:
        self.asked.append(record)
        return Response.resume()


def test_the_bytes_of_a_source_record_are_found_in_its_own_lane() -> None:
    judge = Judge(Response.resume())
    task = task_of(_chain(_refuse), config={"processing.exception.handler": judge})
    task.add_records("in", 0, batch_of(("a", "bad", 1), ("b", "bad", 4)), lane=0)
    task.add_records("in", 0, batch_of(("c", "x", 2), ("d", "bad", 3)), lane=1)
    task.process()
    assert [context.source_raw_key for context, _, _ in judge.asked] == [b"a", b"d", b"b"]


def test_the_bytes_of_a_source_record_are_known_until_its_update_leaves_the_cache() -> None:
    judge = Judge(Response.resume())
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count(Materialized.as_("counts"))
    counts.to_stream().map_values(lambda count: _refuse("bad")).to("out")
    task = task_of(builder.build(), cache_bytes=1 << 20, config={"processing.exception.handler": judge})
    task.add_records("in", 0, batch_of(("k", "first", 1), ("l", "other", 2), ("k", "last", 3)))
    task.process()
    assert judge.asked == []
    task.flush()
    assert [(context.offset, context.source_raw_value) for context, _, _ in judge.asked] == [
        (1, b"other"),
        (2, b"last"),
    ]


def test_a_source_tells_its_handler_the_record_as_it_came() -> None:
    judge = SourceJudge()
    topology = Topology().add_source("source", "in", key_serde=Refusing()).add_sink("sink", "out", "source")
    task = task_of(topology, config={"deserialization.exception.handler": judge})
    batch = batch_of(("bad", "v", 5), first_offset=7)
    task.add_records("in", 0, replace(batch))
    assert task.process() == 0
    assert judge.asked == [ConsumerRecord("in", 0, 7, 5, b"bad", b"v")]


# ---------- what an error of a serde says


def counts(stream: KStream) -> KTable:
    return stream.group_by_key().reduce(lambda before, value: value, Materialized.as_("latest"))


WRONG: list[tuple[Callable[[KStream], object], list[str]]] = [
    (
        lambda stream: stream.to("out"),
        [
            "Source read (created at",
            "cannot read the value, with LongSerde, of the record at topic in, partition 0, offset 1",
            "is not 8",
        ],
    ),
    (
        lambda stream: stream.to("out", Produced.with_(value_serde=Refusing()).with_name("write")),
        [
            "Sink write (created at",
            "cannot write the value to topic out (refused bad)",
            "topic in, partition 0, offset 1",
        ],
    ),
    (
        lambda stream: stream.map_values(lambda v: 7 if v == "bad" else v).to("out", Produced.with_(S, S)),
        [
            "cannot write the value to topic out: StringSerde was given int 7",
            "topic in, partition 0, offset 1",
            "Produced",
        ],
    ),
    (
        lambda stream: stream.select_key(lambda k, v: 7 if v == "bad" else k).repartition(
            Repartitioned.with_(S, S).with_name("again")
        ),
        ["cannot write the key to topic app-again-repartition", "topic in, partition 0, offset 1", "Repartitioned"],
    ),
    (
        lambda stream: counts(stream.map_values(lambda v: 7 if v == "bad" else v)),
        [
            "Store 'latest' cannot write value",
            "processor=KSTREAM-REDUCE",
            "partition=0, offset=1",
            "StringSerde for keys",
        ],
    ),
]


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize(("program", "told"), WRONG)
def test_an_error_of_a_serde_names_node_topic_partition_offset_and_what_to_do(
    program: Callable[[KStream], object], told: list[str], execution: str
) -> None:
    builder = StreamsBuilder()
    reading = Serdes.long() if program is WRONG[0][0] else S
    program(builder.stream("in", Consumed.with_(S, reading, name="read")))
    config = {"application.id": "app", "penstock.execution": execution, "default.value.serde": S}
    with TopologyTestDriver(builder.build(), config) as driver:
        driver.pipe_bytes("in", b"k", b"a goodie", 0)
        with pytest.raises(StreamsError) as caught:
            driver.pipe_bytes("in", b"k", b"bad", 1)
    said = "".join(traceback.format_exception(caught.value))
    assert [words for words in told if words not in said] == []
    assert "ClassCastException" not in said
    failed = caught.value.failed_record
    assert failed is not None
    assert (failed.topic, failed.partition, failed.offset) == ("in", 0, 1)


def _line_before_this() -> str:
    """Return the place of the line above the call."""
    frame = sys._getframe(1)
    return f"{frame.f_code.co_filename}:{frame.f_lineno - 1}"


def _read(builder: StreamsBuilder) -> str:
    builder.stream("in", Consumed.with_(S, Serdes.long())).foreach(print)
    return _line_before_this()


def _write(builder: StreamsBuilder) -> str:
    builder.stream("in").map_values(len).to("out")
    return _line_before_this()


def _write_bytes(builder: StreamsBuilder) -> str:
    builder.stream("in").to("out", Produced.with_(value_serde=Serdes.serde_from(lambda value: 1 // 0, bytes.decode)))
    return _line_before_this()


def _store(builder: StreamsBuilder) -> str:
    builder.stream("in").group_by_key().reduce(lambda one, two: 5, Materialized.as_("latest"))
    return _line_before_this()


def _buffer(builder: StreamsBuilder) -> str:
    lengths = builder.table("in").map_values(len)
    lengths.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()))
    return _line_before_this()


def _global(builder: StreamsBuilder) -> str:
    class Numbers(Processor[Any, Any, Any, Any]):
        def process(self, record: Record[Any, Any]) -> None:
            raise ValueError(record.value)

    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("numbers"), S, S)
    builder.add_global_store(store, "in", Consumed.with_(S, S), Numbers)
    line = _line_before_this()
    builder.stream("other").foreach(print)
    return line


@pytest.mark.parametrize("program", [_read, _write, _write_bytes, _store, _buffer, _global])
def test_an_error_names_the_line_that_created_the_node(program: Callable[[StreamsBuilder], str]) -> None:
    builder = StreamsBuilder()
    line = program(builder)
    driver = TopologyTestDriver(builder.build(), {"default.key.serde": S, "default.value.serde": S})
    with driver, pytest.raises((StreamsError, ValueError)) as caught:
        driver.create_input_topic("in", Serdes.bytes(), Serdes.bytes()).pipe_key_value_list(
            [(b"k", b"one"), (b"k", b"two")]
        )
    assert f"(created at {line})" in "".join(traceback.format_exception(caught.value))


def test_a_windowed_key_that_has_the_default_serde_gets_an_error_with_the_serde_that_it_needs() -> None:
    builder = StreamsBuilder()
    minutes = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(60_000)).count()
    minutes.to_stream().to("out")
    driver = TopologyTestDriver(builder.build(), {"default.key.serde": S, "default.value.serde": S})
    with driver, pytest.raises(StreamsError) as caught:
        driver.pipe_bytes("in", b"k", b"v", 0)
    assert "such as WindowedSerdes.time_windowed(Serdes.string(), size_ms)" in str(caught.value.__cause__)


def test_a_buffer_that_cannot_write_names_processor_and_store() -> None:
    builder = StreamsBuilder()
    lengths = builder.table("in").map_values(len)
    lengths.suppress(Suppressed.until_time_limit(5, BufferConfig.unbounded()).with_name("hold")).to_stream().to("out")
    driver = TopologyTestDriver(builder.build(), {"default.key.serde": S, "default.value.serde": S})
    with driver, pytest.raises(StreamsError) as caught:
        driver.pipe_bytes("in", b"k", b"v", 0)
    said = "".join(traceback.format_exception(caught.value))
    assert "Processor hold (created at" in said
    assert "was given a key or value that the serdes of its store do not write" in said
    assert "Store 'hold-store' cannot write" in said
    assert "with_key_serde and with_value_serde of Materialized, or in Grouped" in said
    assert "ClassCastException" not in said


@pytest.mark.parametrize("execution", ["auto", "record"])
@pytest.mark.parametrize(
    "mapped",
    [
        lambda stream: stream.map(lambda key, value: value),
        lambda stream: stream.flat_map(lambda key, value: [value]),
    ],
)
def test_a_mapper_that_returns_no_pair_is_told_what_it_returned(
    mapped: Callable[[KStream[Any, Any]], KStream[Any, Any]], execution: str
) -> None:
    builder = StreamsBuilder()
    mapped(builder.stream("in")).to("out")
    config = {"default.key.serde": S, "default.value.serde": S, "penstock.execution": execution}
    with TopologyTestDriver(builder.build(), config) as driver, pytest.raises(StreamsError) as caught:
        driver.pipe_bytes("in", b"k", b"alone", 0)
    assert str(caught.value.__cause__) == "The mapper returned 'alone' where a pair (key, value) was expected."


@pytest.mark.parametrize("execution", ["auto", "record"])
def test_an_error_that_no_function_of_the_user_raised_is_told_with_its_cause(execution: str) -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10))
    windowed.count().suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, batch_of(("k", "v", 1)))
    with pytest.raises(StreamsError, match="Exception caught in process") as caught:
        task.process()
    (note,) = caught.value.__notes__
    assert "KTABLE-SUPPRESS" in note
    assert "cannot write key Windowed" in note


def test_an_error_behind_a_cache_names_the_processor_that_failed() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count()
    counts.to_stream().map_values(lambda count: 1 // 0, named=Named.as_("divide")).to("out")
    driver = TopologyTestDriver(builder.build(), {"default.key.serde": S, "default.value.serde": S})
    with driver, pytest.raises(ProcessorStateError, match="Failed to flush cache") as caught:
        driver.pipe_bytes("in", b"k", b"v", 0)
    which, why = caught.value.__notes__
    assert which == "Processor divide failed on an update that the cache forwarded to it."
    assert why.startswith("ZeroDivisionError: ")
    assert "counts.to_stream().map_values(lambda count: 1 // 0" in why


def test_an_error_in_init_is_told_with_its_cause_and_the_line() -> None:
    class Forgets(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.get_state_store("counts")

        def process(self, record: Record[Any, Any]) -> None: ...

    builder = StreamsBuilder()
    builder.stream("in").process(Forgets, named=Named.as_("forgets"))
    with pytest.raises(StreamsError, match="failed to initialize processor forgets") as caught:
        TopologyTestDriver(builder.build(), {"default.key.serde": S, "default.value.serde": S})
    (note,) = caught.value.__notes__
    assert "counts" in note
    assert 'context.get_state_store("counts")' in note


@pytest.mark.parametrize(
    ("extractor", "told"),
    [
        (lambda record, time: record.value, "returned 'v' for the record at topic in, partition 0, offset 0: expected"),
        (lambda record, time: record.missing, "AttributeError: .*missing"),
    ],
)
def test_a_timestamp_extractor_that_fails_is_told(extractor: Any, told: str) -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S, extractor)).to("out")
    with TopologyTestDriver(builder.build(), {}) as driver, pytest.raises(StreamsError) as caught:
        driver.pipe_bytes("in", b"k", b"v", 0)
    assert re.search(told, "\n".join((str(caught.value), *getattr(caught.value, "__notes__", ()))))


@pytest.mark.parametrize("execution", EXECUTIONS)
def test_a_function_that_names_no_topic_is_an_error_with_sink_and_record(execution: str) -> None:
    builder = StreamsBuilder()
    nowhere: Any = no_topic
    builder.stream("in").to(nowhere, Produced.as_("sink"))
    task = task_of(builder.build(), execution=execution)
    task.add_records("in", 0, batch_of(("k", "v", 1)))
    told = "names the topics of sink sink returned None for the input record at topic in, partition 0, offset 0: "
    with pytest.raises(StreamsError, match=told):
        task.process()


def test_a_table_is_not_grouped_by_what_is_no_pair() -> None:
    builder = StreamsBuilder()
    builder.table("in", Consumed.with_(S, S)).group_by(no_pair, Grouped.with_(S, S)).count()
    with TopologyTestDriver(builder.build(), {}) as driver, pytest.raises(StreamsError) as caught:
        driver.pipe_bytes("in", b"k", b"abc", 0)
    assert "The mapper returned 'abc' where a pair (key, value) was expected." in "".join(caught.value.__notes__)


@pytest.mark.parametrize("forwarded", [("v",), ("k", "v")])
def test_what_is_no_record_cannot_be_forwarded(forwarded: Any) -> None:
    class Forwards(Processor):
        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(*forwarded)

    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).process(Forwards).to("out", Produced.with_(S, S))
    with TopologyTestDriver(builder.build(), {}) as driver, pytest.raises(StreamsError) as caught:
        driver.pipe_bytes("in", b"k", b"v", 0)
    expected = "Expected a Record, such as record.with_value(...) or Record(key, value, timestamp), got "
    assert f"{expected}{forwarded[0]!r}" in "".join(caught.value.__notes__)


def test_an_error_in_the_processor_of_a_global_store_names_node_and_record() -> None:
    class Failing(Processor):
        def process(self, record: Record[Any, Any]) -> None:
            raise LookupError("bad value")

    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), S, S)
    topology = Topology().add_global_store(store, "read", "in", "keep", Failing, key_serde=S, value_serde=S)
    with TopologyTestDriver(topology) as driver, pytest.raises(LookupError) as caught:
        driver.pipe_bytes("in", b"k", b"v", 0)
    (note,) = caught.value.__notes__
    assert note.startswith("At keep (created at ")
    assert note.endswith("the processor of a global store, with the record of topic in, partition 0, offset 0.")


def test_an_output_topic_names_itself_where_it_is_read_by_another_serde() -> None:
    builder = StreamsBuilder()
    builder.stream("in", Consumed.with_(S, S)).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.pipe_bytes("in", b"k", b"v", 0)
        with pytest.raises(SerializationError) as caught:
            driver.create_output_topic("out", S, Serdes.long()).read_value()
    assert "Output topic 'out' has b'v', which LongSerde cannot read" in caught.value.__notes__[0]
