"""Operators that call functions outside of their tasks, on each host: order, retries, failures, restarts, limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from penstock import (
    Backoff,
    CallContext,
    Calls,
    Consumed,
    Grouped,
    KStream,
    Materialized,
    Produced,
    Retry,
    Serdes,
    StreamsBuilder,
    Topology,
)
from penstock.client.api import NewTopic
from penstock.errors import StreamsError
from penstock.record import TopicPartition
from tests.host.support import InputRecord, Program, Runner, wait_for

pytestmark = [pytest.mark.one_broker, pytest.mark.parametrize("runner", ["threads"], indirect=True)]

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
CALLS = Calls(capacity=10)
HOUR_MS = 3_600_000


async def charged(value: str) -> str:
    await asyncio.sleep(0)
    return f"{value} charged"


def calling(source: str, target: str, operator: Callable[[KStream], KStream]) -> Topology:
    builder = StreamsBuilder()
    operator(builder.stream(source, TEXT)).to(target, Produced.with_(STRING, STRING))
    return builder.build()


def charging(source: str, target: str, function: Callable[..., object] = charged, calls: Calls = CALLS) -> Topology:
    return calling(source, target, lambda stream: stream.map_values(function, named="charge", calls=calls))


def rows(*texts: str, partition: int = 0) -> list[InputRecord]:
    """Return a record for each text, whose first letter is its key."""
    return [
        InputRecord(text[0].encode(), text.encode(), 1_000 + number, partition, (("n", str(number).encode()),))
        for number, text in enumerate(texts)
    ]


def values(runner: Runner, topic: str) -> list[str]:
    return [(each.value or b"").decode() for each in runner.read(topic)]


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("workers", [1, 2])
def test_results_have_the_time_and_headers_of_their_records(
    runner: Runner, application: str, topics: tuple[str, str], guarantee: str, workers: int
) -> None:
    config = runner.config(application, {"processing.guarantee": guarantee, "num.stream.threads": workers})
    runner.write(topics[0], rows("a1", "b1", "a2"))
    runner.run(charging(*topics), config)
    found = [(each.key, each.value, each.timestamp, each.headers) for each in runner.read(topics[1])]
    assert sorted(found) == [
        (b"a", b"a1 charged", 1_000, (("n", b"0"),)),
        (b"a", b"a2 charged", 1_002, (("n", b"2"),)),
        (b"b", b"b1 charged", 1_001, (("n", b"1"),)),
    ]
    assert [value for _, value, _, _ in found if value.startswith(b"a")] == [b"a1 charged", b"a2 charged"]


async def is_good(key: str, value: str) -> bool:
    return value != "b1"


async def pair(key: str, value: str) -> tuple[str, str]:
    return f"{key}2", value


async def parts(value: str) -> list[str]:
    return [*value]


async def pairs(key: str, value: str) -> list[tuple[str, str]]:
    return [(each, value) for each in value]


async def first(key: str, value: str) -> str:
    return value[1]


METHODS: dict[str, tuple[Callable[[KStream], KStream], list[tuple[str, str]]]] = {
    "map": (lambda s: s.map(pair, calls=CALLS, named="call"), [("a2", "a1"), ("b2", "b1")]),
    "flat_map": (
        lambda s: s.flat_map(pairs, calls=CALLS, named="call"),
        [("1", "a1"), ("1", "b1"), ("a", "a1"), ("b", "b1")],
    ),
    "flat_map_values": (
        lambda s: s.flat_map_values(parts, calls=CALLS, named="call"),
        [("a", "1"), ("a", "a"), ("b", "1"), ("b", "b")],
    ),
    "filter": (lambda s: s.filter(is_good, calls=CALLS, named="call"), [("a", "a1")]),
    "filter_not": (lambda s: s.filter_not(is_good, calls=CALLS, named="call"), [("b", "b1")]),
    "peek": (lambda s: s.peek(pair, calls=CALLS, named="call"), [("a", "a1"), ("b", "b1")]),
    "select_key": (lambda s: s.select_key(first, calls=CALLS, named="call"), [("1", "a1"), ("1", "b1")]),
}


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("method", METHODS)
def test_each_method_makes_calls(runner: Runner, application: str, topics: tuple[str, str], method: str) -> None:
    operator, expected = METHODS[method]
    runner.write(topics[0], rows("a1", "b1"))
    runner.run(calling(*topics, operator), runner.config(application))
    found = [((each.key or b"").decode(), (each.value or b"").decode()) for each in runner.read(topics[1])]
    assert sorted(found) == expected


@pytest.mark.partitions(2, 1)
def test_results_go_on_to_stores_and_repartition_topics(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    builder = StreamsBuilder()
    stream = builder.stream(topics[0], TEXT)
    grouped = stream.group_by(first, Grouped.with_(STRING, STRING).with_name("by-first"), calls=CALLS)
    counts = grouped.count(Materialized.as_("counts"))
    counts.to_stream().to(topics[1], Produced.with_(STRING, Serdes.long()))
    for partition in range(2):
        runner.write(topics[0], rows(*["a1", "b1", "a2", "b2", "b1"], partition=partition))
    runner.run(builder.build(), runner.config(application))
    latest = {each.key: int.from_bytes(each.value or b"", "big") for each in runner.read(topics[1])}
    assert latest == {b"1": 6, b"2": 4}


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("on_failure", ["raise", "skip"])
def test_a_call_that_fails_each_time_stops_the_program_or_is_skipped(
    runner: Runner, application: str, topics: tuple[str, str], on_failure: str
) -> None:
    async def call(value: str) -> str:
        if value == "a1":
            raise ValueError("declined")
        return value

    retry = Retry(attempts=3, backoff=Backoff(1))
    topology = charging(*topics, call, Calls(retry=retry, on_failure=on_failure))  # type: ignore[arg-type]  # a text
    runner.write(topics[0], rows("a1", "b1"))
    if on_failure == "raise":
        with pytest.raises(StreamsError, match="declined"):
            runner.run(topology, runner.config(application))
        return
    runner.run(topology, runner.config(application))
    assert values(runner, topics[1]) == ["b1"]


@pytest.mark.partitions(1, 1)
def test_a_failed_record_is_a_dead_letter(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str]
) -> None:
    letters = unique_name("dead-letters")
    runner.create_topics({letters: 1})

    async def call(value: str) -> str:
        if value == "a1":
            raise ValueError("declined")
        return value

    runner.write(topics[0], rows("a1", "b1", "a2"))
    runner.run(charging(*topics, call, Calls(then=letters)), runner.config(application))
    assert sorted(values(runner, topics[1])) == ["a2", "b1"]
    (letter,) = runner.read(letters)
    assert (letter.key, letter.value) == (b"a", b"a1")
    assert dict(letter.headers)["__streams.errors.offset"] == b"0"


def noted(path: Path, value: str, *, call: CallContext) -> str:
    """Append the idempotency key to a file, and return the value."""
    with path.open("a") as file:
        file.write(f"{call.idempotency_key}\n")
    return value


@pytest.mark.partitions(2, 1)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_restarted_program_makes_no_answered_call_again(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    tmp_path: Path,
    workers: int,
) -> None:
    calls = tmp_path / "calls"
    topology = charging(*topics, partial(noted, calls), Calls(threads=4))
    config = runner.config(application, {"num.stream.threads": workers, "processing.guarantee": "exactly_once_v2"})
    program = start(topology, config)
    written = 0
    for turn in range(3):
        for partition in range(2):
            runner.write(topics[0], rows(*(f"{key}{turn}" for key in "abcdefgh"), partition=partition))
        written += 16
        wait_for(lambda count=written: len(runner.read(topics[1])) == count)
        program.restart()
    assert Counter(values(runner, topics[1])) == {f"{key}{turn}": 2 for key in "abcdefgh" for turn in range(3)}
    assert len(calls.read_text().splitlines()) == len(set(calls.read_text().splitlines())) == 48


async def declined_while_exists(outage: Path, calls: Path, value: str) -> str:
    """Note the call, and fail for the value `a1` while the file `outage` exists."""
    with calls.open("a") as file:
        file.write(f"{value}\n")
    if value == "a1" and outage.exists():
        raise ConnectionError("The service is down.")
    return value


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_that_failed_is_made_again_after_a_restart(
    runner: Runner, application: str, topics: tuple[str, str], tmp_path: Path, guarantee: str, workers: int
) -> None:
    outage, calls = tmp_path / "outage", tmp_path / "calls"
    outage.touch()
    topology = charging(*topics, partial(declined_while_exists, outage, calls), CALLS)
    settings = {"processing.guarantee": guarantee, "num.stream.threads": workers, "penstock.restart.max.attempts": 0}
    config = runner.config(application, settings)
    runner.write(topics[0], rows("a1", "b1", "c1"))
    for _ in range(2):
        with pytest.raises(StreamsError, match="The service is down"):
            runner.run(topology, config)
    outage.unlink()
    runner.run(topology, config)
    assert sorted(values(runner, topics[1])) == ["a1", "b1", "c1"]
    assert Counter(calls.read_text().split()) == {"a1": 3, "b1": 1, "c1": 1}


async def with_client(value: str, *, client: str) -> str:
    return f"{value} {client}"


def opened_unless_exists(outage: Path) -> AbstractContextManager[str]:
    """Return a client, if a file does not exist."""
    if outage.exists():
        raise ConnectionError("The database is down.")
    return nullcontext("answered")


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_client_that_cannot_be_opened_ends_the_program_and_loses_no_record(
    runner: Runner, application: str, topics: tuple[str, str], tmp_path: Path, workers: int
) -> None:
    outage = tmp_path / "outage"
    outage.touch()
    calls = Calls(open=partial(opened_unless_exists, outage), on_failure="skip")
    topology = charging(*topics, with_client, calls)
    settings = {"num.stream.threads": workers, "penstock.restart.max.attempts": 0}
    config = runner.config(application, settings)
    runner.write(topics[0], rows("a1", "b1"))
    with pytest.raises(StreamsError, match=r"The client of charge cannot be opened: .* The database is down"):
        runner.run(topology, config)
    outage.unlink()
    runner.run(topology, config)
    assert sorted(values(runner, topics[1])) == ["a1 answered", "b1 answered"]


async def while_exists(gate: Path, value: str) -> str:
    """Return the value when a file does not exist."""
    while gate.exists():
        await asyncio.sleep(0.005)
    return value


@pytest.mark.partitions(1, 1)
def test_a_commit_waits_for_no_call(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    start(charging(*topics, partial(while_exists, gate)), runner.config(application))
    place = TopicPartition(topics[0], 0)
    for number in range(3):
        runner.write(topics[0], rows(f"a{number}"))
        wait_for(lambda end=number + 1: committed(runner, application, place) == end)
    assert runner.read(topics[1]) == []
    gate.unlink()
    wait_for(lambda: values(runner, topics[1]) == ["a0", "a1", "a2"])


def committed(runner: Runner, application: str, place: TopicPartition) -> int | None:
    found = runner.admin.committed_offsets(application, [place], stable=False).get(place)
    return None if found is None else found.offset


@pytest.mark.partitions(1, 1)
def test_a_full_store_stops_the_input_and_not_the_answers(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    calls = Calls(max_records=50)
    config = runner.config(application, {"buffered.records.per.partition": 100})
    start(charging(*topics, partial(while_exists, gate), calls), config)
    place, total = TopicPartition(topics[0], 0), 2_000
    runner.write(topics[0], rows(*(f"{number % 10}-{number}" for number in range(total))))
    wait_for(lambda: (committed(runner, application, place) or 0) >= 50)
    assert (committed(runner, application, place) or 0) < total
    gate.unlink()
    wait_for(lambda: len(runner.read(topics[1])) == total)
    for key in range(10):
        of_key = [int(value.partition("-")[2]) for value in values(runner, topics[1]) if value.startswith(f"{key}-")]
        assert of_key == sorted(of_key)


@pytest.mark.partitions(1, 1)
def test_no_call_starts_while_the_program_is_paused(
    runner: Runner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    calls, gate = tmp_path / "calls", tmp_path / "gate"
    gate.touch()

    async def call(value: str, *, call: CallContext) -> str:
        noted(calls, value, call=call)
        return await while_exists(gate, value)

    topology = charging(*topics, call, Calls(capacity=1))
    with runner.running(topology, runner.config(application)) as host:
        runner.write(topics[0], rows("a1", "b1"))
        wait_for(calls.exists)
        host.pause()
        gate.unlink()
        answers = TopicPartition(f"{application}-charge-answers", 0)
        wait_for(lambda: runner.admin.end_offsets([answers])[answers] == 1)
        assert len(calls.read_text().splitlines()) == 1
        host.resume()
        wait_for(lambda: sorted(values(runner, topics[1])) == ["a1", "b1"])


@pytest.mark.partitions(1, 1)
def test_the_metrics_of_an_operator_count_its_calls(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    with runner.running(charging(*topics), runner.config(application)) as host:
        runner.write(topics[0], rows("a1", "b1"))
        wait_for(lambda: len(runner.read(topics[1])) == 2)
        found = {
            operation.name: sampled.number
            for operation, sampled in host.measured().operations.items()
            if operation.id == "charge"
        }
    assert (found["calls-answered"], found["calls-failed"], found["call"]) == (2, 0, 2)


@pytest.mark.partitions(1, 1)
def test_used_answers_are_deleted(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    start(charging(*topics), runner.config(application, {"repartition.purge.interval.ms": 0}))
    answers = TopicPartition(f"{application}-charge-answers", 0)
    for number in range(3):
        runner.write(topics[0], rows(f"a{number}"))
        wait_for(lambda end=number + 1: len(runner.read(topics[1])) == end)
    wait_for(lambda: runner.admin.beginning_offsets([answers])[answers] > 0)


@pytest.mark.partitions(2, 1)
def test_a_reset_deletes_the_answers(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    topology, config = charging(*topics), runner.config(application)
    runner.write(topics[0], rows("a1"))
    runner.run(topology, config)
    answers = f"{application}-charge-answers"
    assert runner.admin.topics()[answers] == 2
    runner.host(topology, config).reset()
    wait_for(lambda: answers not in runner.admin.topics())
    runner.run(topology, config)
    assert values(runner, topics[1]) == ["a1 charged", "a1 charged"]


@pytest.mark.partitions(2, 1)
def test_a_group_of_the_streams_protocol_makes_calls(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    start(charging(*topics), runner.config(application, {"group.protocol": "streams"}))
    for partition in range(2):
        runner.write(topics[0], rows("a1", "b1", partition=partition))
    wait_for(lambda: Counter(values(runner, topics[1])) == {"a1 charged": 2, "b1 charged": 2})


@pytest.mark.partitions(1, 1)
def test_calls_do_not_wait_for_a_long_commit_interval(
    runner: Runner, start: Callable[..., Program], application: str, topics: tuple[str, str]
) -> None:
    settings = {"processing.guarantee": "at_least_once", "commit.interval.ms": HOUR_MS}
    limited = Calls(capacity=10, max_records=5)
    start(
        charging(*topics, calls=limited), runner.config(application, {**settings, "buffered.records.per.partition": 5})
    )
    texts = [f"{'abcd'[number % 4]}{number}" for number in range(40)]
    runner.write(topics[0], rows(*texts))
    wait_for(lambda: Counter(values(runner, topics[1])) == Counter(f"{text} charged" for text in texts))


async def enlarged(value: str) -> str:
    return value if value != "b1" else "".join(chr(33 + number * 7919 % 90) for number in range(9_000))


@pytest.mark.partitions(1, 1)
@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_a_refused_result_is_not_lost(
    runner: Runner, application: str, topics: tuple[str, str], unique_name: Callable[[str], str], guarantee: str
) -> None:
    small = unique_name("small")
    runner.admin.create_topics([NewTopic(small, 1, 1, {"max.message.bytes": "2000"})])
    config = runner.config(application, {"processing.guarantee": guarantee, "penstock.restart.max.attempts": 0})
    runner.write(topics[0], rows("a1", "b1", "c1"))
    for _ in range(2):
        with pytest.raises(StreamsError, match="Message size too large"):
            runner.run(charging(topics[0], small, enlarged), config)
    runner.run(charging(topics[0], topics[1], enlarged), config)
    assert 9_000 in map(len, values(runner, topics[1]))
