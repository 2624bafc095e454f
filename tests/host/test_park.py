"""Operators that park the records on which their functions fail, on each host: order, restarts, crashes, changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock import Backoff, Consumed, Park, Produced, Serdes, StreamsBuilder, Topology
from penstock.application.parked_records import ParkedRecords, PartitionRequest
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.processor.parked_requests import ParkedAction, ParkedRequestSerde
from tests.host.support import WITH_PROCESSES, InputRecord, Program, Runner, wait_for
from tests.host.test_time import FileClock

pytestmark = [WITH_PROCESSES, pytest.mark.one_broker]

STRING = Serdes.string()
TEXT = Consumed.with_(key_serde=STRING, value_serde=STRING)
SETTINGS = {"commit.interval.ms": 0}
CHARGED = (b"c1 charged", b"d1 charged")
PARK = Park(backoff=Backoff(1_000, factor=4, limit=60_000), attempts=3)


def charge(down: Path, key: str, value: str) -> str:
    """Fail for the keys in a file, which each host reads, and mark the value."""
    if key in down.read_text().split():
        raise ConnectionError(f"no answer for {value}")
    return f"{value} charged"


def charging(source: str, target: str, down: Path, park: Park) -> Topology:
    builder = StreamsBuilder()
    charged = builder.stream(source, TEXT).map_values(partial(charge, down), named="charge", on_error=park)
    charged.to(target, Produced.with_(STRING, STRING))
    return builder.build()


def rows(began: int, *texts: str, partition: int = 0) -> list[InputRecord]:
    """Return a record for each text, whose first letter is its key."""
    return [
        InputRecord(text[0].encode(), text.encode(), began + number, partition, (("n", str(number).encode()),))
        for number, text in enumerate(texts)
    ]


def written(program: Program, runner: Runner, topic: str) -> list[bytes | None]:
    """Return the values in a topic after all that is due."""
    program.run_to_end()
    return [each.value for each in runner.read(topic)]


@pytest.fixture
def down(tmp_path: Path) -> Path:
    path = tmp_path / "down"
    path.write_text("a")
    return path


@pytest.fixture
def clock(tmp_path: Path) -> FileClock:
    return FileClock(tmp_path / "clock")


@pytest.mark.partitions(1, 1)
def test_a_key_waits_in_order_and_others_go_on(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    down: Path,
    clock: FileClock,
) -> None:
    began = clock.milliseconds()
    program = start(charging(*topics, down, PARK), runner.config(application, SETTINGS), clock)
    runner.write(topics[0], rows(began, "a1", "b1", "a2", "c1"))
    program.run_to_end()
    assert [each.value for each in runner.read(topics[1])] == [b"b1 charged", b"c1 charged"]
    clock.advance(1_000)  # the second attempt fails
    program.run_to_end()
    program.restart()
    down.write_text("")
    runner.write(topics[0], rows(began + 100, "a3"))
    program.run_to_end()
    assert len(runner.read(topics[1])) == 2
    clock.advance(4_000)
    wait_for(lambda: len(written(program, runner, topics[1])) == 5)
    found = [(each.value, each.timestamp - began, each.headers) for each in runner.read(topics[1])]
    assert found[2:] == [
        (b"a1 charged", 0, (("n", b"0"),)),
        (b"a2 charged", 2, (("n", b"2"),)),
        (b"a3 charged", 100, (("n", b"0"),)),
    ]


@pytest.mark.partitions(1, 1)
def test_a_record_that_fails_each_time_is_a_dead_letter(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    down: Path,
    clock: FileClock,
    unique_name: Callable[[str], str],
) -> None:
    letters = unique_name("dead-letters")
    runner.create_topics({letters: 1})
    park = Park(backoff=Backoff(1_000), attempts=2, then=letters)
    program = start(charging(*topics, down, park), runner.config(application, SETTINGS), clock)
    runner.write(topics[0], rows(clock.milliseconds(), "a1", "a2"))
    program.run_to_end()
    assert runner.read(letters) == []
    clock.advance(1_000)
    wait_for(lambda: written(program, runner, letters) == [b"a1"])
    (letter,) = runner.read(letters)
    assert (letter.key, letter.value) == (b"a", b"a1")
    said = dict(letter.headers)
    assert (said["__streams.errors.topic"], said["__streams.errors.offset"]) == (topics[0].encode(), b"0")
    assert said["__streams.errors.message"] == b"no answer for a1"
    down.write_text("")
    clock.advance(1_000)
    wait_for(lambda: written(program, runner, topics[1]) == [b"a2 charged"])


@pytest.mark.partitions(1, 1)
def test_parked_keys_are_queried_while_the_program_runs(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    down: Path,
    clock: FileClock,
) -> None:
    topology = charging(*topics, down, PARK)
    config = runner.config(application, {**SETTINGS, "penstock.query.refresh.ms": 0})
    program = start(topology, config, clock)
    began = clock.milliseconds()
    runner.write(topics[0], rows(began, "a1", "b1", "a2"))
    program.run_to_end()
    queries = program.queries()
    (parked,) = ParkedRecords(queries, queries.stores(), config).keys("charge-parked")
    expected = (
        "charge-parked",
        0,
        "a",
        2,
        1,
        began + 1_000,
        "ConnectionError: no answer for a1",
        began,
        topics[0],
        0,
        0,
    )
    assert astuple(replace(parked, bytes=0)) == (*expected, 0)
    assert parked.bytes > len("a1") + len("a2")


def requests_now(
    program: Program, config: StreamsConfig, action: ParkedAction, chosen: Callable[[Any], bool] | None = None
) -> list[PartitionRequest]:
    """Return the requests of `penstock parked` about the records that are parked now."""
    queries = program.queries()
    return ParkedRecords(queries, queries.stores(), config).requests("charge-parked", action, chosen)


def write_requests(runner: Runner, config: StreamsConfig, requests: list[PartitionRequest]) -> None:
    topic = f"{config['application.id']}-charge-parked-requests"
    data = [(each.partition, ParkedRequestSerde().serialize(topic, each.request)) for each in requests]
    runner.write(topic, [InputRecord(None, value, 1, partition) for partition, value in data])


def request(
    program: Program,
    runner: Runner,
    config: StreamsConfig,
    action: ParkedAction,
    chosen: Callable[[Any], bool] | None = None,
) -> None:
    """Write a request about the records that are parked now, as `penstock parked` does."""
    write_requests(runner, config, requests_now(program, config, action, chosen))


@pytest.mark.partitions(2, 1)
def test_parked_records_are_tried_again_or_dropped_on_request(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    down: Path,
    clock: FileClock,
    unique_name: Callable[[str], str],
) -> None:
    letters = unique_name("dead-letters")
    runner.create_topics({letters: 1})
    park = Park(backoff=Backoff(3_600_000), attempts=3, then=letters)
    config = runner.config(application, {**SETTINGS, "penstock.query.refresh.ms": 0})
    program = start(charging(*topics, down, park), config, clock)
    down.write_text("a b")
    began = clock.milliseconds()
    runner.write(topics[0], [*rows(began, "a1", "c1", "a2"), *rows(began, "b1", "d1", partition=1)])
    program.run_to_end()
    down.write_text("b")
    request(program, runner, config, ParkedAction.RETRY, lambda key: key == "a")
    wait_for(lambda: set(written(program, runner, topics[1])) == {b"a1 charged", b"a2 charged", *CHARGED})
    assert runner.read(letters) == []
    request(program, runner, config, ParkedAction.DROP)
    wait_for(lambda: written(program, runner, letters) == [b"b1"])
    program.restart()
    down.write_text("")
    runner.write(topics[0], rows(began + 9, "a3", "b2", partition=0))
    wait_for(lambda: set(written(program, runner, topics[1])) >= {b"a3 charged", b"b2 charged"})
    assert len(runner.read(topics[1])) == 6
    assert len(runner.read(letters)) == 1


@pytest.mark.partitions(1, 1)
def test_a_late_request_does_not_concern_records_that_are_parked_after_it_was_made(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    down: Path,
    clock: FileClock,
    unique_name: Callable[[str], str],
) -> None:
    """All records that the request names leave the store, and the task is opened again, before it is written."""
    letters = unique_name("dead-letters")
    runner.create_topics({letters: 1})
    park = Park(backoff=Backoff(3_600_000), attempts=3, then=letters)
    config = runner.config(application, {**SETTINGS, "penstock.query.refresh.ms": 0})
    program = start(charging(*topics, down, park), config, clock)
    began = clock.milliseconds()
    runner.write(topics[0], rows(began, "a1", "a2", "a3"))
    program.run_to_end()
    late = requests_now(program, config, ParkedAction.DROP)
    down.write_text("")
    request(program, runner, config, ParkedAction.RETRY)
    charged: list[bytes | None] = [b"a%d charged" % number for number in (1, 2, 3)]
    wait_for(lambda: written(program, runner, topics[1]) == charged)
    program.restart()
    down.write_text("a")
    runner.write(topics[0], rows(began + 9, "a4"))
    program.run_to_end()
    write_requests(runner, config, late)
    request(program, runner, config, ParkedAction.RETRY)
    down.write_text("")
    expected = [*charged, b"a4 charged"]
    wait_for(lambda: written(program, runner, topics[1]) == expected or bool(runner.read(letters)))
    assert runner.read(letters) == []


@pytest.mark.partitions(1, 1)
def test_an_error_elsewhere_undoes_the_parking_with_the_rest(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    down: Path,
    clock: FileClock,
    tmp_path: Path,
) -> None:
    """A task that fails has parked records, and tried others again, since its last commit."""
    broken = tmp_path / "broken"
    broken.write_text("x")
    builder = StreamsBuilder()
    charged = builder.stream(topics[0], TEXT).map_values(partial(charge, down), named="charge", on_error=PARK)
    checked = charged.map_values(partial(charge, broken), named="check")
    checked.to(topics[1], Produced.with_(STRING, STRING))
    config = runner.config(application, SETTINGS)
    program = start(builder.build(), config, clock)
    runner.write(topics[0], rows(clock.milliseconds(), "a1", "a2", "x1", "a3"))
    with pytest.raises(StreamsError, match="processor=check"):
        program.run_to_end()
    broken.write_text("a")
    program.restart()
    program.run_to_end()
    down.write_text("")
    clock.advance(1_000)
    with pytest.raises(StreamsError, match=r"processor=check, topic=.*, partition=0, offset=0"):
        wait_for(lambda: bool(written(program, runner, topics[1])[1:]))
    broken.write_text("")
    program.restart()
    charged_values: list[bytes | None] = [
        b"x1 charged charged",
        *(b"a%d charged charged" % number for number in (1, 2, 3)),
    ]
    wait_for(lambda: written(program, runner, topics[1]) == charged_values)


@pytest.mark.partitions(1, 1)
def test_an_error_elsewhere_undoes_a_request_with_the_rest(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    down: Path,
    clock: FileClock,
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    letters, broken = unique_name("dead-letters"), tmp_path / "broken"
    runner.create_topics({letters: 1})
    broken.write_text("x")
    park = Park(backoff=Backoff(3_600_000), attempts=3, then=letters)
    builder = StreamsBuilder()
    charged = builder.stream(topics[0], TEXT).map_values(partial(charge, down), named="charge", on_error=park)
    charged.map_values(partial(charge, broken), named="check").to(topics[1], Produced.with_(STRING, STRING))
    config = runner.config(application, {**SETTINGS, "penstock.query.refresh.ms": 0})
    program = start(builder.build(), config, clock)
    runner.write(topics[0], rows(clock.milliseconds(), "a1", "a2"))
    program.run_to_end()
    request(program, runner, config, ParkedAction.DROP)
    runner.write(topics[0], rows(clock.milliseconds(), "x1"))
    with pytest.raises(StreamsError, match="processor=check"):
        program.run_to_end()
    broken.write_text("")
    program.restart()
    program.run_to_end()
    assert [each.value for each in runner.read(letters)] == [b"a1", b"a2"]
    assert [each.value for each in runner.read(topics[1])] == [b"x1 charged charged"]


@pytest.mark.partitions(1, 1)
def test_a_changed_program_takes_the_parked_records_over(
    runner: Runner,
    start: Callable[..., Program],
    application: str,
    topics: tuple[str, str],
    down: Path,
    clock: FileClock,
) -> None:
    program = start(charging(*topics, down, PARK), runner.config(application, SETTINGS), clock)
    runner.write(topics[0], rows(clock.milliseconds(), "a1", "a2"))
    program.run_to_end()
    builder = StreamsBuilder()
    checked = builder.stream(topics[0], TEXT).filter(lambda key, value: value != "a9", named="checked")
    charged = checked.map_values(partial(charge, down), named="charge", on_error=PARK)
    charged.map_values(lambda value: f"{value} again").to(topics[1], Produced.with_(STRING, STRING))
    program.change(builder.build())
    down.write_text("")
    clock.advance(1_000)
    wait_for(lambda: written(program, runner, topics[1]) == [b"a1 charged again", b"a2 charged again"])
