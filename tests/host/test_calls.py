"""Operators that call functions outside of their tasks, on each host: order, retries, failures, restarts, limits."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from penstock import (
    Backoff,
    CallContext,
    Calls,
    Grouped,
    KafkaStreamsNamedTopologyWrapper,
    KStream,
    Materialized,
    NamedTopology,
    Retry,
    Serdes,
    StreamsBuilder,
    Topology,
)
from penstock.client.api import NewTopic
from penstock.errors import StreamsError
from penstock.exception_handlers import LogAndContinueProcessingExceptionHandler
from penstock.record import TopicPartition
from tests.host.calling_service import (
    CALLS,
    SERVICE,
    STRING,
    TEXT,
    TEXTS,
    Service,
    ask,
    asking,
    calling,
    rows,
    texts,
    values,
)
from tests.host.support import (
    IN_PROCESSES,
    WITH_PROCESSES,
    InputRecord,
    Program,
    Runner,
    advance_until,
    wait_for,
)

pytestmark = [pytest.mark.one_broker, pytest.mark.usefixtures("service")]

HOUR_MS = 3_600_000
MOMENT = timedelta(milliseconds=20)

ON_ALL = pytest.mark.parametrize("runner", ["driver", "threads", IN_PROCESSES, "spark"], indirect=True)
STEP_BY_STEP = pytest.mark.parametrize("runner", ["threads", "spark"], indirect=True)
ON_THREADS = pytest.mark.parametrize("runner", ["threads"], indirect=True)


# ---------------------------------------- methods


async def is_good(key: str, value: str) -> bool:
    return value != "b1"


async def pair(key: str, value: str) -> tuple[str, str]:
    SERVICE.calls[f"pair {value}"] += 1
    return f"{key}2", value


async def parts(value: str) -> list[str]:
    return [*value]


async def pairs(key: str, value: str) -> list[tuple[str, str]]:
    return [(each, value) for each in value]


async def second(key: str, value: str) -> str:
    return value[1]


def upper(value: str) -> str:
    return value.upper()


def labelled(label: str, value: object) -> str:
    return f"{label} {value}"


METHODS: dict[str, tuple[Callable[[KStream], KStream], list[tuple[str, str]]]] = {
    "map": (lambda s: s.map(pair, "map", calls=CALLS), [("a2", "a1"), ("b2", "b1")]),
    "map_values": (lambda s: s.map_values(ask, "map_values", calls=Calls(rate=1_000)), [("a", "a1 1"), ("b", "b1 1")]),
    "blocking": (lambda s: s.map_values(upper, "blocking", calls=Calls(threads=2)), [("a", "A1"), ("b", "B1")]),
    "flat_map": (
        lambda s: s.flat_map(pairs, "flat_map", calls=CALLS),
        [("1", "a1"), ("1", "b1"), ("a", "a1"), ("b", "b1")],
    ),
    "flat_map_values": (
        lambda s: s.flat_map_values(parts, "flat_map_values", calls=CALLS),
        [("a", "1"), ("a", "a"), ("b", "1"), ("b", "b")],
    ),
    "filter": (lambda s: s.filter(is_good, "filter", calls=CALLS), [("a", "a1")]),
    "filter_not": (lambda s: s.filter_not(is_good, "filter_not", calls=CALLS), [("b", "b1")]),
    "peek": (lambda s: s.peek(pair, "peek", calls=CALLS), [("a", "a1"), ("b", "b1")]),
    "select_key": (lambda s: s.select_key(second, "select_key", calls=CALLS), [("1", "a1"), ("1", "b1")]),
}


@pytest.mark.partitions(1, 1)
@ON_ALL
def test_each_method_makes_calls(runner: Runner, application: str, topics: tuple[str, str], service: Service) -> None:
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], TEXT)
    for name, (operator, _) in METHODS.items():
        operator(stream).map_values(partial(labelled, name)).to(topics[1], TEXTS)
    stream.foreach(pair, "foreach", calls=CALLS)
    runner.write(topics[0], rows("a1", "b1"))
    runner.run_here(builder.build(), runner.config(application))
    found = runner.read(topics[1])
    assert sorted(
        (*text.split(maxsplit=1), (each.key or b"").decode()) for each, text in zip(found, texts(found), strict=True)
    ) == (sorted((name, value, key) for name, (_, results) in METHODS.items() for key, value in results))
    assert {(each.timestamp, each.headers) for each in found} == {(1_000, (("n", b"0"),)), (1_001, (("n", b"1"),))}
    assert service.calls["pair a1"] == 3  # of map, peek and foreach


async def forgotten(value: str) -> Any:
    value.upper()


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("runner", ["driver", "threads"], indirect=True)
def test_a_function_that_forgets_its_answer_is_named_in_a_warning(
    runner: Runner, application: str, topics: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    builder = StreamsBuilder()
    builder.stream(topics[0], TEXT).map_values(forgotten, "risk", calls=CALLS).to(topics[1], TEXTS)
    runner.write(topics[0], rows("a1", "b1"))
    with caplog.at_level(logging.WARNING):
        runner.run_here(builder.build(), runner.config(application))
    assert [each.value for each in runner.read(topics[1])] == [None, None]
    (warning,) = (each for each in caplog.messages if "has returned no value before" in each)
    place = f"{__file__}:{forgotten.__code__.co_firstlineno}"
    assert warning.startswith(f"The mapper forgotten ({place}) of risk (created at {__file__}:")


@pytest.mark.partitions(2, 1)
@ON_ALL
def test_calls_stand_before_and_after_stores_and_repartition_topics(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream(topics[0], TEXT).group_by(
        second, Grouped.with_(STRING, STRING).with_name("by-second"), calls=CALLS
    )
    counts = grouped.count(Materialized.as_("counts").with_key_serde(STRING)).to_stream()
    counts.map_values(counted, "counted", calls=Calls(value_serde=Serdes.long())).to(topics[1], TEXTS)
    for partition in range(2):
        runner.write(topics[0], rows("a1", "b1", "a2", "b2", "b1", partition=partition))
    runner.run_here(builder.build(), runner.config(application))
    latest = {each.key: text for each, text in zip(runner.read(topics[1]), values(runner, topics[1]), strict=True)}
    assert latest == {b"1": "6 times", b"2": "4 times"}


async def counted(value: int) -> str:
    return f"{value} times"


# ---------------------------------------- order


async def after_other(order: str, value: str) -> str:
    """Answer a0 after b0."""
    SERVICE.calls[f"{order} {value}"] += 1
    while value == "a0" and not SERVICE.calls[f"{order} b0"]:
        await asyncio.sleep(0.005)
    return f"{order} {value}"


@pytest.mark.partitions(1, 1)
@WITH_PROCESSES
def test_results_have_the_order_of_the_operator(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], TEXT)
    stream.map_values(partial(after_other, "key"), "key", calls=Calls()).to(topics[1], TEXTS)
    stream.map_values(partial(after_other, "partition"), "partition", calls=Calls(order="partition")).to(
        topics[1], TEXTS
    )
    stream.map_values(partial(after_other, "unordered"), "unordered", calls=Calls(order="unordered")).to(
        topics[1], TEXTS
    )
    written = ["a0", "b0", "a1", "b1", "a2"]
    runner.write(topics[0], rows(*written))
    runner.run_here(builder.build(), runner.config(application))
    found: dict[str, list[str]] = {"key": [], "partition": [], "unordered": []}
    for order, value in map(str.split, values(runner, topics[1])):
        found[order].append(value)
    assert found["partition"] == written
    assert [value for value in found["key"] if value[0] == "a"] == ["a0", "a1", "a2"]
    assert [value for value in found["key"] if value[0] == "b"] == ["b0", "b1"]
    assert found["key"][0] == "b0"
    assert sorted(found["unordered"]) == sorted(written)
    assert found["unordered"].index("b0") < found["unordered"].index("a0")


# ---------------------------------------- failures


async def mended(value: str, *, call: CallContext) -> str:
    if call.attempt < 3:
        raise ConnectionError("no service")
    return f"{value} at attempt {call.attempt}"


async def down(value: str) -> str:
    raise ConnectionError("no service")


async def wrong(value: str) -> str:
    raise ValueError("wrong")


async def silent(value: str) -> str:
    await asyncio.Event().wait()
    return value


def blocked(value: str) -> str:
    SERVICE.ended.wait(60)
    return value


@pytest.mark.partitions(1, 1)
@ON_ALL
def test_each_kind_of_failure_has_its_end(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str]
) -> None:
    letters = unique_name("letters")
    runner.create_topics({letters: 1})
    twice = Retry(attempts=2, backoff=Backoff(1), on=ConnectionError)
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], TEXT)
    for name, function, calls in (
        ("mended", mended, Calls(retry=Retry(attempts=3, backoff=Backoff(1)))),
        ("skipped", down, Calls(on_failure="skip")),
        ("raised", down, Calls()),  # the handler continues
        ("down", down, Calls(retry=twice, then=letters)),
        ("wrong", wrong, Calls(retry=twice, then=letters)),
        ("silent", silent, Calls(timeout=MOMENT, then=letters)),
        ("blocked", blocked, Calls(threads=2, timeout=MOMENT, then=letters)),
    ):
        stream.map_values(function, name, calls=calls).to(topics[1], TEXTS)
    handler = {"processing.exception.handler": LogAndContinueProcessingExceptionHandler}
    runner.write(topics[0], rows("a1", "b1"))
    runner.run_here(builder.build(), runner.config(application, handler))
    assert sorted(values(runner, topics[1])) == ["a1 at attempt 3", "b1 at attempt 3"]
    found = runner.read(letters)
    told = [(dict(each.headers)["__streams.errors.message"] or b"").decode() for each in found]
    assert Counter(text[: text.index("Error: ")] for text in told) == {
        "The call of down failed at attempt 2: Connection": 2,
        "The call of wrong failed at attempt 1: Value": 2,
        "The call of silent failed at attempt 1: Timeout": 2,
        "The call of blocked failed at attempt 1: Timeout": 2,
    }
    assert all("within 20 ms" in text for text in told if "TimeoutError" in text)
    assert {(each.key, each.value, dict(each.headers)["__streams.errors.offset"]) for each in found} == {
        (b"a", b"a1", b"0"),
        (b"b", b"b1", b"1"),
    }


def failure_of(runner: Runner, topology: Topology, config: Any) -> str:
    """Return the texts of the error that ends a program, and of its cause."""
    with pytest.raises(StreamsError) as raised:
        runner.run_here(topology, config)
    return f"{raised.value} {raised.value.__cause__}"


@pytest.mark.partitions(1, 1)
@ON_ALL
def test_the_last_failure_of_a_call_ends_the_program(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    runner.write(topics[0], rows("a1"))
    calls = Calls(retry=Retry(attempts=2, backoff=Backoff(1)))
    told = failure_of(runner, asking(*topics, down, calls), runner.config(application))
    assert f"processor=ask, topic={topics[0]}, partition=0, offset=0" in told
    assert "The call of ask failed at attempt 2: ConnectionError: no service" in told


# ---------------------------------------- clients


@contextmanager
def opened() -> Iterator[str]:
    SERVICE.clients.append("opened")
    yield "client"
    SERVICE.clients.append("closed")


async def seen(value: str, *, client: str, call: CallContext) -> str:
    SERVICE.seen.append(call)
    if call.attempt == 1:
        raise ConnectionError("no service")
    return f"{client} {value}"


@pytest.mark.partitions(1, 1)
@ON_ALL
def test_the_function_gets_one_client_and_its_call(
    runner: Runner, application: str, topics: tuple[str, str], service: Service
) -> None:
    calls = Calls(open=opened, retry=Retry(attempts=2, backoff=Backoff(1)))
    runner.write(topics[0], rows("a1", "b1"))
    runner.run_here(asking(*topics, seen, calls), runner.config(application))
    assert sorted(values(runner, topics[1])) == ["client a1", "client b1"]
    assert service.clients == ["opened", "closed"]
    assert sorted((each.key, each.attempt, each.offset, each.idempotency_key) for each in service.seen) == [
        (key, attempt, offset, f"{topics[0]}-0-{offset}-ask")
        for offset, key in enumerate(["a", "b"])
        for attempt in (1, 2)
    ]


# ---------------------------------------- restarts


@pytest.mark.partitions(2, 1)
@pytest.mark.parametrize("runner", ["threads", "processes", "spark"], indirect=True)
def test_a_restarted_program_makes_no_answered_call_again(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    program = start(asking(*topics), runner.config(application, {"processing.guarantee": "exactly_once_v2"}))
    for turn in range(2):
        for partition in range(2):
            runner.write(topics[0], rows(*(f"{key}{turn}{partition}" for key in "abcd"), partition=partition))
        advance_until(program, lambda count=8 * (turn + 1): len(runner.read(topics[1])) >= count)
        program.restart()
    names = [f"{key}{turn}{partition}" for key in "abcd" for turn in range(2) for partition in range(2)]
    assert Counter(values(runner, topics[1])) == Counter(f"{name} 1" for name in names)


@pytest.mark.partitions(1, 1)
@WITH_PROCESSES
def test_a_call_that_failed_is_made_again_after_a_restart(
    runner: Runner, application: str, topics: tuple[str, str], service: Service
) -> None:
    service.declined.add("a1")
    config = runner.config(application, {"penstock.restart.max.attempts": 0})
    runner.write(topics[0], rows("a1", "b1", "c1"))
    for _ in range(2):
        assert "The service is down" in failure_of(runner, asking(*topics), config)
    service.declined.clear()
    runner.run_here(asking(*topics), config)
    assert sorted(values(runner, topics[1])) == ["a1 3", "b1 1", "c1 1"]


async def with_client(value: str, *, client: str) -> str:
    return f"{value} {client}"


def opened_if_up() -> AbstractContextManager[str]:
    """Return a client, if the service is up."""
    if not SERVICE.is_up:
        raise ConnectionError("The database is down.")
    return nullcontext("answered")


@pytest.mark.partitions(1, 1)
@WITH_PROCESSES
def test_a_client_that_cannot_be_opened_ends_the_program_and_loses_no_record(
    runner: Runner, application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    builder = StreamsBuilder()
    calls = Calls(open=opened_if_up, on_failure="skip")
    builder.stream(topics[0], TEXT).map_values(with_client, named="ask", calls=calls).to(topics[1], TEXTS)
    config = runner.config(application, {"penstock.restart.max.attempts": 0})
    runner.write(topics[0], rows("a1", "b1"))
    message = failure_of(runner, builder.build(), config)
    assert "The client of ask cannot be opened: opened_if_up, the open of its Calls" in message
    assert "The database is down." in message
    service.is_up = True
    runner.run_here(builder.build(), config)
    assert sorted(values(runner, topics[1])) == ["a1 answered", "b1 answered"]


# ---------------------------------------- limits, pause


@pytest.mark.partitions(1, 1)
@STEP_BY_STEP
def test_a_full_store_stops_the_input_and_not_the_answers(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    calls = Calls(max_records=20, capacity=1_000, order="partition")
    written = [f"{number % 10}-{number}" for number in range(600)]
    runner.write(topics[0], rows(*written))
    config = runner.config(application, {"buffered.records.per.partition": 40})
    program = start(asking(*topics, calls=calls), config)
    advance_until(program, lambda: service.calls.total() >= 20)
    program.advance()
    assert service.calls.total() < 300
    service.is_up = True
    advance_until(program, lambda: len(runner.read(topics[1])) >= 600)
    assert values(runner, topics[1]) == [f"{text} 1" for text in written]


@pytest.mark.partitions(1, 1)
@STEP_BY_STEP
def test_no_call_starts_while_the_program_is_paused(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    program = start(asking(*topics, calls=Calls(capacity=1)), runner.config(application))
    runner.write(topics[0], rows("a1", "b1"))
    advance_until(program, lambda: service.calls.total() == 1)
    program.pause()
    program.advance()
    service.is_up = True
    answers = TopicPartition(f"{application}-ask-answers", 0)
    wait_for(lambda: runner.admin.end_offsets([answers])[answers] == 1)
    program.advance()
    assert service.calls.total() == 1
    assert values(runner, topics[1]) == []
    program.resume()
    advance_until(program, lambda: sorted(values(runner, topics[1])) == ["a1 1", "b1 1"])


@pytest.mark.partitions(1, 1)
@STEP_BY_STEP
def test_used_answers_are_deleted(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    program = start(asking(*topics), runner.config(application, {"repartition.purge.interval.ms": 0}))
    answers = TopicPartition(f"{application}-ask-answers", 0)
    for number in range(3):
        runner.write(topics[0], rows(f"a{number}"))
        advance_until(program, lambda end=number + 1: len(runner.read(topics[1])) == end)
    advance_until(program, lambda: runner.admin.beginning_offsets([answers])[answers] > 0)


@pytest.mark.partitions(1, 1)
@STEP_BY_STEP
@pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
def test_answers_that_expire_before_they_are_used_hold_up_no_call(
    runner: Runner, application: str, topics: tuple[str, str], reset: str
) -> None:
    topology, answers = asking(*topics), TopicPartition(f"{application}-ask-answers", 0)
    runner.write(topics[0], rows("a1"))
    runner.run_here(topology, runner.config(application, {"auto.offset.reset": "earliest"}))
    used = runner.admin.end_offsets([answers])[answers]
    runner.write(answers.topic, [InputRecord(b"expired", b"", 1_000)] * 2)
    runner.admin.delete_records({answers: used + 2})
    runner.write(topics[0], rows("b1"))
    runner.run_here(topology, runner.config(application, {"auto.offset.reset": reset}))
    assert values(runner, topics[1]) == ["a1 1", "b1 1"]


def run_with_more_answers_partitions(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    """Run twice, and add partitions to the topic of answers in between."""
    topology, answers = asking(*topics), f"{application}-ask-answers"
    for turn in range(2):
        runner.write(topics[0], rows(f"a{turn}"))
        runner.write(topics[0], rows(f"b{turn}", partition=1))
        runner.run_here(topology, runner.config(application, {"auto.offset.reset": "earliest"}))
        if not turn:
            runner.add_partitions(answers, 5)


@pytest.mark.partitions(2, 1)
@pytest.mark.parametrize("runner", ["spark"], indirect=True)
def test_an_answers_topic_with_more_partitions_than_tasks_is_used_as_before(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    run_with_more_answers_partitions(runner, application, topics)
    assert Counter(values(runner, topics[1])) == Counter(("a0 1", "b0 1", "a1 1", "b1 1"))


@pytest.mark.partitions(2, 1)
@ON_THREADS
def test_an_answers_topic_with_more_partitions_than_tasks_is_refused_before_any_call(
    runner: Runner, application: str, topics: tuple[str, str], service: Service
) -> None:
    with pytest.raises(StreamsError, match=r"ask-answers has invalid partitions: expected: 2; actual: 5\."):
        run_with_more_answers_partitions(runner, application, topics)
    assert service.calls.keys() == {"a0", "b0"}


# ---------------------------------------- changes of the program


@pytest.mark.partitions(1, 1)
@STEP_BY_STEP
def test_waiting_records_stay_with_the_name_of_their_operator(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    program = start(asking(*topics), runner.config(application))
    runner.write(topics[0], rows("a1", "b1"))
    advance_until(program, lambda: service.calls.total() == 2)
    program.change(asking(*topics, name="other"))
    service.is_up = True
    runner.write(topics[0], rows("c1"))
    advance_until(program, lambda: values(runner, topics[1]) == ["c1 1"])
    program.change(asking(*topics))
    advance_until(program, lambda: sorted(values(runner, topics[1])) == ["a1 2", "b1 2", "c1 1"])


@pytest.mark.partitions(1, 1)
@STEP_BY_STEP
def test_an_operator_with_another_name_takes_over_the_store_by_its_name(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    calls = Calls(store_name="waiting")
    program = start(asking(*topics, calls=calls), runner.config(application))
    runner.write(topics[0], rows("a1", "b1"))
    advance_until(program, lambda: service.calls.total() == 2)
    service.is_up = True
    program.change(asking(*topics, calls=calls, name="other"))
    advance_until(program, lambda: sorted(values(runner, topics[1])) == ["a1 2", "b1 2"])


# ---------------------------------------- threads


@pytest.mark.partitions(1, 1)
@ON_THREADS
def test_a_commit_waits_for_no_call(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    start(asking(*topics), runner.config(application))
    place = TopicPartition(topics[0], 0)
    for number in range(3):
        runner.write(topics[0], rows(f"a{number}"))
        wait_for(lambda end=number + 1: committed(runner, application, place) == end)
    assert runner.read(topics[1]) == []
    service.is_up = True
    wait_for(lambda: values(runner, topics[1]) == ["a0 1", "a1 1", "a2 1"])


def committed(runner: Runner, application: str, place: TopicPartition) -> int | None:
    found = runner.admin.committed_offsets(application, [place], stable=False).get(place)
    return None if found is None else found.offset


@pytest.mark.partitions(1, 1)
@ON_THREADS
def test_the_metrics_of_an_operator_count_its_calls(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    with runner.running(asking(*topics), runner.config(application)) as host:
        runner.write(topics[0], rows("a1", "b1"))
        wait_for(lambda: len(runner.read(topics[1])) == 2)
        found = {
            operation.name: sampled.number
            for operation, sampled in host.measured().operations.items()
            if operation.id == "ask"
        }
    assert (found["calls-answered"], found["calls-failed"], found["call"]) == (2, 0, 2)


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("runner", ["threads", IN_PROCESSES], indirect=True)
def test_answers_are_counted_apart_from_the_records_read(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    runner.write(topics[0], rows("a1", "b1"))
    figures = runner.run(asking(*topics), runner.config(application)).statistics
    assert (figures.records_in, figures.answers_in, figures.records_out) == (2, 2, 2)


@pytest.mark.partitions(2, 1)
@ON_THREADS
def test_a_reset_deletes_answers_and_waiting_records(
    runner: Runner, application: str, topics: tuple[str, str], service: Service
) -> None:
    service.is_up = False
    topology, config = asking(*topics), runner.config(application)
    internal = {f"{application}-ask-answers", f"{application}-ask-calls-changelog"}
    runner.write(topics[0], rows("a1"))
    with runner.running(topology, config):
        wait_for(lambda: service.calls.total() == 1)
    assert internal <= set(runner.admin.topics())
    runner.host(topology, config).reset()
    wait_for(lambda: internal.isdisjoint(runner.admin.topics()))
    service.is_up = True
    runner.run(topology, config)
    assert values(runner, topics[1]) == ["a1 2"]


@pytest.mark.partitions(2, 1)
@ON_THREADS
def test_another_number_of_partitions_is_refused_before_any_call(
    runner: Runner, application: str, topics: tuple[str, str], service: Service
) -> None:
    config = runner.config(application)
    runner.run(asking(*topics), config)
    runner.add_partitions(topics[0], 3)
    runner.write(topics[0], rows("a1", partition=2))
    with pytest.raises(StreamsError, match="ask-answers has invalid partitions: expected: 3; actual: 2"):
        runner.run(asking(*topics), config)
    assert not service.calls


@pytest.mark.partitions(2, 1)
@ON_THREADS
def test_a_group_of_the_streams_protocol_makes_calls(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    start(asking(*topics), runner.config(application, {"group.protocol": "streams"}))
    for partition in range(2):
        runner.write(topics[0], rows(f"a{partition}", f"b{partition}", partition=partition))
    wait_for(lambda: sorted(values(runner, topics[1])) == ["a0 1", "a1 1", "b0 1", "b1 1"])


@pytest.mark.partitions(1, 1)
@ON_THREADS
def test_operators_of_two_topologies_may_have_one_name(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str]
) -> None:
    targets = {"one": topics[1], "other": unique_name("other")}
    runner.create_topics({targets["other"]: 1})

    def named(streams: KafkaStreamsNamedTopologyWrapper, name: str) -> NamedTopology:
        builder = streams.new_named_topology_builder(name)
        builder.stream(topics[0], TEXT).map_values(labelled_later, named="ask", calls=CALLS).to(targets[name], TEXTS)
        return builder.build()

    def has(name: str, count: int) -> bool:
        return values(runner, targets[name]) == [f"asked a{number}" for number in range(count)]

    with KafkaStreamsNamedTopologyWrapper(runner.config(application)) as streams:
        for name in targets:
            streams.add_named_topology(named(streams, name)).all().result()
        runner.write(topics[0], rows("a0"))
        wait_for(lambda: has("one", 1) and has("other", 1))
        streams.pause_named_topology("other")
        runner.write(topics[0], rows("a1"))
        wait_for(lambda: has("one", 2))
        assert has("other", 1)
        streams.remove_named_topology("one").all().result()
        streams.resume_named_topology("other")
        wait_for(lambda: has("other", 2))
        streams.add_named_topology(named(streams, "one")).all().result()
        runner.write(topics[0], rows("a2"))
        wait_for(lambda: has("one", 3) and has("other", 3))
    answers = {topic for topic in runner.admin.topics() if topic.startswith(application) and topic.endswith("-answers")}
    assert answers == {f"{application}-{name}-ask-answers" for name in targets}


async def labelled_later(value: str) -> str:
    return labelled("asked", value)


@pytest.mark.partitions(1, 1)
@ON_THREADS
def test_calls_do_not_wait_for_a_long_commit_interval(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    settings = {"commit.interval.ms": HOUR_MS, "buffered.records.per.partition": 5}
    start(asking(*topics, calls=Calls(capacity=10, max_records=5)), runner.config(application, settings))
    written = [f"{'abcd'[number % 4]}{number}" for number in range(40)]
    runner.write(topics[0], rows(*written))
    wait_for(lambda: Counter(values(runner, topics[1])) == Counter(f"{text} 1" for text in written))


async def first_only(value: str) -> str:
    """Answer a1, and the others when the service is released."""
    SERVICE.calls[value] += 1
    while value != "a1" and not SERVICE.ended.is_set():
        await asyncio.sleep(0.005)
    return value


def stumbling(value: str) -> str:
    if not SERVICE.ended.is_set():
        raise ValueError("It stumbles.")
    return value


@pytest.mark.partitions(1, 1)
@ON_THREADS
def test_calls_that_wait_since_a_crash_do_not_wait_for_a_long_commit_interval(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], service: Service
) -> None:
    builder = StreamsBuilder()
    asked = builder.stream(topics[0], TEXT).map_values(first_only, named="ask", calls=Calls(capacity=5))
    asked.map_values(stumbling).to(topics[1], TEXTS)
    topology = builder.build()
    settings = {"commit.interval.ms": HOUR_MS, "penstock.restart.max.attempts": 0}
    config = runner.config(application, settings)
    runner.write(topics[0], rows("a1", "b1", "c1"))
    assert "It stumbles." in failure_of(runner, topology, config)
    service.ended.set()
    start(topology, config)
    wait_for(lambda: {*values(runner, topics[1])} == {"a1", "b1", "c1"})
    assert service.calls["a1"] == 1


async def enlarged(value: str) -> str:
    return value if value != "b1" else "".join(chr(33 + number * 7919 % 90) for number in range(9_000))


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@ON_THREADS
def test_a_refused_result_is_not_lost(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str], guarantee: str
) -> None:
    small = unique_name("small")
    runner.admin.create_topics([NewTopic(small, 1, 1, {"max.message.bytes": "2000"})])
    config = runner.config(application, {"processing.guarantee": guarantee, "penstock.restart.max.attempts": 0})
    runner.write(topics[0], rows("a1", "b1", "c1"))
    for _ in range(2):
        with pytest.raises(StreamsError, match="Message size too large"):
            runner.run(asking(topics[0], small, enlarged), config)
    runner.run(asking(topics[0], topics[1], enlarged), config)
    assert 9_000 in map(len, values(runner, topics[1]))


def uppercase(name: str, stream: KStream) -> KStream:
    return stream.map_values(upper, named=name)


def waiting_to(service: Service, program: Program, runner: Runner, topics: tuple[str, str]) -> None:
    """Write two records, and run until their calls have begun, which do not end."""
    service.is_up = False
    runner.write(topics[0], rows("a1", "b1"))
    advance_until(program, lambda: service.calls.total() == 2)


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("store", ["ask-calls", "questions"])
@pytest.mark.parametrize("runner", ["threads", IN_PROCESSES, "spark"], indirect=True)
def test_each_start_warns_of_records_whose_operator_has_lost_its_calls(
    store: str,
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    service: Service,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with_calls = asking(*topics, calls=Calls(capacity=10, store_name=store))
    program = start(with_calls, runner.config(application))
    waiting_to(service, program, runner, topics)
    for changed in ("ask", "demand"):
        without = calling(*topics, partial(uppercase, changed))
        caplog.clear()
        program.change(without)
        told = f"2 records of operator ask wait for calls in store {store}, and the program has no such operator"
        assert told in caplog.text
        runner.write(topics[0], rows("c1"))
        program.run_to_end()
    service.release()
    caplog.clear()
    program.change(with_calls)
    assert "wait for calls" not in caplog.text
    advance_until(program, lambda: len(values(runner, topics[1])) == 4)
    program.change(without)
    assert "wait for calls" not in caplog.text
