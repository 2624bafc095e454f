"""How an application starts, refuses to start, runs, fails and ends, on each host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock import Processor, ProcessorContext, PunctuationType, Record, StreamsBuilder, Topology
from penstock.errors import MissingSourceTopicError, StreamsError
from penstock.host.api import Host, StreamThreadExceptionResponse
from tests.host.support import WITH_ALL_SESSIONS, Listening, Runner, lines, wait_for
from tests.host.test_topologies import TEXT, TEXT_OUT, final, text, word_count

pytestmark = [WITH_ALL_SESSIONS, pytest.mark.partitions(2, 1)]

REPLACE = StreamThreadExceptionResponse.REPLACE_THREAD
IN_ONE_COMMIT = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 3_600_000}
QUICK = {"penstock.restart.backoff.ms": 10, "penstock.restart.backoff.max.ms": 20}


def text_values(runner: Runner, topic: str) -> list[str]:
    return [text(record.value) or "" for record in runner.read(topic)]


def test_runs_until_closed_and_continues_where_it_stopped(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    config = runner.config(application)
    with runner.running(word_count(source, target), config) as host:
        runner.write(source, lines(["a b", "b"], partitions=2))
        wait_for(lambda: host.statistics().records_in >= 2)
        runner.write(source, lines(["a"]))
        wait_for(lambda: host.statistics().records_out >= 4)
        assert host.statistics().records_in == 3
    assert final(runner.read(target)) == {"a": 2, "b": 2}
    with runner.running(word_count(source, target), config) as host:
        host.pause()
        runner.write(source, lines(["a"]))
        host.resume()
        wait_for(lambda: host.statistics().records_out >= 1)
    assert final(runner.read(target)) == {"a": 3, "b": 2}
    assert len(runner.read(target)) == 5


class Ticking(Processor):
    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(50, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, timestamp: int) -> None:
        self.context.forward(Record("tick", str(timestamp), timestamp))

    def process(self, record: Record[str, str]) -> None:
        raise NotImplementedError


@pytest.mark.one_broker
def test_punctuates_by_wall_clock_without_input(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    source, target = topics
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).process(Ticking).to(target, produced=TEXT_OUT)
    with runner.running(builder.build(), runner.config(application)) as host:
        wait_for(lambda: host.statistics().records_out >= 6)
    times = [int(text(record.value) or 0) for record in runner.read(target)]
    assert len(times) >= 6
    assert len(set(times)) >= 3  # two tasks tick at the same time, in three epochs or more


@pytest.mark.one_broker
def test_prints_of_user_functions_arrive_once(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    builder = StreamsBuilder()
    builder.stream(topics[0], consumed=TEXT).peek(lambda _, value: print("saw", value)).to(topics[1], produced=TEXT_OUT)
    runner.write(topics[0], lines(["x", "y"], partitions=2))
    ended = runner.run(builder.build(), runner.config(application))
    assert sorted(ended.printed.splitlines()) == ["saw x", "saw y"]


def failing(source: str, target: str) -> Topology:
    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).map_values(lambda value: str(1 / int(value))).to(target, produced=TEXT_OUT)
    return builder.build()


def test_an_error_of_a_user_function_is_one_readable_error_and_nothing_is_written(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    runner.write(source, lines(["1", "2", "4", "5", "8", "0"], partitions=2))
    with pytest.raises(StreamsError) as caught:
        runner.run(failing(source, target), runner.config(application, IN_ONE_COMMIT))
    message = str(caught.value)
    assert "KSTREAM-MAPVALUES-0000000001" in message
    assert f"topic={source}, partition=1, offset=2" in message
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    notes = "\n".join(caught.value.__notes__)
    assert "ZeroDivisionError: division by zero" in notes
    assert "str(1 / int(value))" in notes
    assert Path(__file__).name in notes
    assert "org.apache.spark" not in message + notes
    assert runner.read(target) == []


def test_continues_after_the_cause_of_an_error_is_fixed(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    config = runner.config(application, IN_ONE_COMMIT)
    runner.write(source, lines(["1", "0"]))
    with pytest.raises(StreamsError):
        runner.run(failing(source, target), config)
    builder = StreamsBuilder()
    mended = builder.stream(source, consumed=TEXT).map_values(lambda value: value * 2)
    mended.to(target, produced=TEXT_OUT)
    runner.run(builder.build(), config)
    assert [text(record.value) for record in runner.read(target)] == ["11", "00"]


@pytest.mark.one_broker
def test_an_application_that_failed_holds_nothing_that_another_needs(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    runner.write(topics[0], lines(["0"]))
    config = runner.config(application)
    failed = runner.host(failing(*topics), config)
    listening = Listening()
    failed.start(listening)
    assert listening.ended.wait(120)
    assert isinstance(listening.error, StreamsError)
    builder = StreamsBuilder()
    builder.stream(topics[0], consumed=TEXT).map_values(lambda value: f"mended {value}").to(
        topics[1], produced=TEXT_OUT
    )
    runner.run(builder.build(), config)  # before the first is closed, as in a cell of a notebook that runs again
    failed.close(30_000)
    assert [record.value for record in runner.read(topics[1])] == [b"mended 0"]


@pytest.mark.one_broker
def test_a_missing_source_topic_is_named_with_the_command_that_makes_it(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    with pytest.raises(MissingSourceTopicError, match="penstock topics create no-such-topic"):
        runner.run(word_count("no-such-topic", topics[1]), runner.config(application))


def test_a_missing_topic_of_a_sink_is_named(runner: Runner, application: str, topics: tuple[str, str]) -> None:
    with pytest.raises(StreamsError, match="sinks write to do not exist: no-such-topic") as caught:
        runner.run(word_count(topics[0], "no-such-topic"), runner.config(application))
    assert any("writes the records of" in note and ".py:" in note for note in caught.value.__notes__)


@pytest.mark.one_broker
def test_a_rebalance_continues_where_the_tasks_stopped(
    runner: Runner, application: str, topics: tuple[str, str]
) -> None:
    source, target = topics
    host = runner.host(word_count(source, target), runner.config(application))
    listening = Listening()
    host.start(listening)
    try:
        runner.write(source, lines(["a b", "b"], partitions=2))
        wait_for(lambda: host.statistics().records_out == 3)
        host.rebalance("a test asks for it")
        wait_for(lambda: listening.states[-2:] == ["REBALANCING", "RUNNING"] or listening.ended.is_set())
        runner.write(source, lines(["a"]))
        wait_for(lambda: host.statistics().records_out == 4 or listening.ended.is_set())
        host.rebalance("and again")
    finally:
        assert host.close(60_000)
    assert listening.error is None
    assert final(runner.read(target)) == {"a": 2, "b": 2}
    assert len(runner.read(target)) == 4


@contextmanager
def listened(host: Host, *responses: StreamThreadExceptionResponse) -> Iterator[Listening]:
    """Run `host` inside the block; at failures give `responses`."""
    listening = Listening(responses=list(responses))
    host.start(listening)
    try:
        yield listening
    finally:
        host.close(60_000)


def failing_with(marker: Path, times: int, source: str, target: str) -> Topology:
    """Return a topology whose function fails as often as `times` while there is a file `marker`, in which it counts its
    failures."""

    def checked(value: str) -> str:
        if marker.exists() and marker.stat().st_size < times:
            with marker.open("a") as file:
                file.write("x")
            raise ValueError("the marker is there")
        return value.upper()

    builder = StreamsBuilder()
    builder.stream(source, consumed=TEXT).map_values(checked).to(target, produced=TEXT_OUT)
    return builder.build()


@pytest.mark.one_broker
def test_what_failed_is_replaced_and_continues_from_the_last_commit(
    runner: Runner, application: str, topics: tuple[str, str], tmp_path: Path
) -> None:
    source, target = topics
    marker = tmp_path / "marker"
    config = runner.config(application, {**QUICK, "processing.guarantee": "exactly_once_v2"})
    with listened(runner.host(failing_with(marker, 2, source, target), config), REPLACE, REPLACE) as listening:
        runner.write(source, lines(["a"]))
        wait_for(lambda: text_values(runner, target) == ["A"])
        marker.touch()
        runner.write(source, lines(["b"]))
        # It may fail again before it is reported as running.
        wait_for(lambda: text_values(runner, target) == ["A", "B"] and listening.states[-1] == "RUNNING")
        assert "REBALANCING" in listening.states
        assert not listening.ended.is_set()
    assert marker.read_text() == "xx"
    assert listening.states.count("StreamsError") == 2, "nothing is tried again without the handler"
