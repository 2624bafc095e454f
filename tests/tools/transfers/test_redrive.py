"""`penstock redrive`: dead letters go back once, as they were, by filter, and whoever is killed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from penstock import Consumed, Serdes, StreamsBuilder, TimeWindows
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.exception_handlers import ErrorHandlerContext, LogAndContinueProcessingExceptionHandler
from penstock.host.crashpoints import TRANSFER_POINTS
from penstock.metrics.drop_reasons import DropReason
from penstock.record import ConsumerRecord, Headers, RecordMetadata
from penstock.task.dropped_records import dropped_headers
from penstock.testing import TopologyTestDriver
from penstock.tools.transfers.redrive import (
    DeadLetter,
    LetterSelection,
    NotADeadLetterError,
    RedriveOptions,
    _Offsets,
    inspect_letters,
    read_dead_letter,
)
from penstock.windows import TimeWindow
from penstock_broker.process import BrokerProcess
from tests.support.commands import Run, penstock
from tests.tools.transfers.topics import Sent, Topics


@pytest.fixture
def topics(embedded_broker: BrokerProcess) -> Iterator[Topics]:
    with Topics(embedded_broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture
def run(embedded_broker: BrokerProcess, penstock_here: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in this process with the broker's address in the environment."""
    monkeypatch.setenv("PENSTOCK_BOOTSTRAP_SERVERS", embedded_broker.bootstrap_servers)
    return penstock_here


class Case:
    """A source topic of two partitions and its dead letter queue of one."""

    def __init__(self, topics: Topics, run: Run, source: str, queue: str) -> None:
        self.topics, self.run = topics, run
        self.source, self.queue = topics.create(source, 2), topics.create(queue)

    def fail(
        self,
        value: bytes | None,
        error: Exception,
        partition: int = 0,
        key: bytes | None = b"k",
        timestamp: int = 7,
        headers: Headers = (),
        topic: str | None = "",
        offset: int = 0,
    ) -> None:
        """Write the dead letter of a record whose processing fails. topic: the source if it is empty."""
        self.topics.write(self.queue, [self.letter(value, error, partition, key, timestamp, headers, topic, offset)])

    def letter(
        self,
        value: bytes | None,
        error: Exception,
        partition: int = 0,
        key: bytes | None = b"k",
        timestamp: int = 7,
        headers: Headers = (),
        topic: str | None = "",
        offset: int = 0,
    ) -> Sent:
        handler = LogAndContinueProcessingExceptionHandler()
        handler.configure({"errors.dead.letter.queue.topic.name": self.queue})
        origin = self.source if topic == "" else topic
        context = ErrorHandlerContext(origin, partition, offset, headers, "node", "0_0", timestamp, key, value)
        (made,) = handler.dead_letter_queue_records(context, error)
        return Sent(0, made.key, made.value, made.timestamp, made.headers)

    def redrive(self, *arguments: str) -> dict[str, Any]:
        """Return the answer of `penstock redrive --json`."""
        ended = self.run("redrive", self.queue, "--json", *arguments)
        assert ended.code == 0, ended.err
        answer: dict[str, Any] = json.loads(ended.out)
        return answer

    def values(self, topic: str = "") -> list[bytes | None]:
        return [each.value for each in self.topics.read(topic or self.source)]


@pytest.fixture
def case(topics: Topics, run: Run, unique_name: Callable[[str], str]) -> Case:
    return Case(topics, run, unique_name("in"), unique_name("dlq"))


def test_dead_letters_go_back_once_as_they_were(case: Case) -> None:
    case.fail(b"\xff\x00", ValueError("no number [red]"), 1, b"\x01", 5, (("trace", b"a"), ("trace", None)))
    case.fail(None, KeyError("x"), 0, None, 6)
    told = case.run("redrive", case.queue)
    assert told.code == 0, told.err
    assert "no number [red]" in told.out
    assert f"Redrove 2 records of {case.queue}." in told.out
    back = [Sent(0, None, None, 6), Sent(1, b"\x01", b"\xff\x00", 5, (("trace", b"a"), ("trace", None)))]
    assert case.topics.read(case.source) == back
    again = case.run("redrive", case.queue).out
    assert f"Redrove 0 records of {case.queue}." in again
    assert "Left out what earlier runs have written: 2 offsets." in again
    case.fail(b"late", ValueError())
    assert case.redrive()["records"] == 1
    assert case.topics.read(case.source) == [back[0], Sent(0, b"k", b"late", 7), back[1]]


def test_a_dry_run_writes_nothing_and_shows_what_a_run_would_write(case: Case) -> None:
    case.fail(b"a", ValueError("first"))
    case.fail(b"b", ValueError("second"))
    planned = case.redrive("--dry-run")
    group = {"topic": case.source, "partition": 0, "target": case.source, "records": 2}
    assert planned == {
        "dead_letter_topic": case.queue,
        "letters": [{**group, "exception": "builtins.ValueError", "message": "first"}],
        "not_selected": 0,
        "without_source": 0,
        "invalid": 0,
        "redriven_before": 0,
        "records": 2,
        "dry_run": True,
    }
    assert case.values() == []
    assert f"penstock-redrive-{case.queue}" not in case.topics.admin.topics()
    assert case.redrive() == {**planned, "dry_run": False}
    assert case.redrive("--dry-run")["records"] == 0
    assert case.values() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("selection", "taken"),
    [
        (LetterSelection(), "abcd"),
        (LetterSelection(topics=frozenset(["t"])), "abc"),
        (LetterSelection(partitions=frozenset([1, 2])), "cd"),
        (LetterSelection(exceptions=frozenset(["KeyError"])), "bd"),
        (LetterSelection(exceptions=frozenset(["builtins.ValueError", "IndexError"])), "ac"),
        (LetterSelection(exceptions=frozenset(["builtins"])), ""),
        (LetterSelection(keys=frozenset([b"x"])), "ad"),
        (LetterSelection(since=2_000, until=4_000), "bc"),
        (LetterSelection(offsets=frozenset([7, 8])), "bc"),
        (LetterSelection(exceptions=frozenset(["KeyError"]), partitions=frozenset([1])), "d"),
    ],
)
def test_a_selection_takes_what_each_of_its_filters_takes(selection: LetterSelection, taken: str) -> None:
    letters = {
        "a": DeadLetter("builtins.ValueError", "", "t", 0, b"x", None, 1_000, ()),
        "b": DeadLetter("builtins.KeyError", "", "t", 0, None, None, 2_000, (), 7),
        "c": DeadLetter("builtins.ValueError", "", "t", 1, b"y", None, 3_999, (), 8),
        "d": DeadLetter("builtins.KeyError", "", None, 1, b"x", None, 4_000, ()),
    }
    assert "".join(name for name, letter in letters.items() if selection.takes(letter)) == taken


def test_what_filters_leave_out_is_for_another_run(case: Case) -> None:
    case.fail(b"a", ValueError(), 0, b"x", 1_000)
    case.fail(b"b", KeyError(), 0, b"y", 2_000)
    case.fail(b"c", ValueError(), 1, b"y", 2_999)
    case.fail(b"d", KeyError(), 1, b"y", 3_000)
    chosen = ("--key", "79", "--key-serde", "bytes", "--since", "1970-01-01T00:00:02Z")
    chosen += ("--until", "1970-01-01T00:00:03+00:00", "--exception", "KeyError", "--partition", "0")
    answer = case.redrive(*chosen)
    assert (answer["records"], answer["not_selected"]) == (1, 3)
    assert case.values() == [b"b"]
    assert case.redrive(*chosen)["records"] == 0
    assert case.redrive("--exception", "KeyError")["records"] == 1
    assert case.redrive()["records"] == 2
    assert case.values() == [b"b", b"a", b"d", b"c"]


def test_a_filter_by_source_topic_leaves_the_other_topics(case: Case, unique_name: Callable[[str], str]) -> None:
    other = case.topics.create(unique_name("other"))
    case.fail(b"a", ValueError())
    case.fail(b"b", ValueError(), topic=other)
    assert case.redrive("--source-topic", other)["records"] == 1
    assert (case.values(), case.values(other)) == ([], [b"b"])


def test_a_filter_by_offset_takes_one_record(case: Case) -> None:
    for offset, value in ((17, b"a"), (18, b"b")):
        case.fail(value, ValueError(), offset=offset)
    assert case.redrive("--source-topic", case.source, "--partition", "0", "--offset", "18")["records"] == 1
    assert case.values() == [b"b"]


def test_the_last_records_of_a_queue_say_whether_they_were_redriven(case: Case, embedded_broker: BrokerProcess) -> None:
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": embedded_broker.bootstrap_servers})
    for time in range(1, 8):
        case.fail(b"%d" % time, ValueError(f"error {time}"), timestamp=time, offset=10 + time)
    case.redrive("--offset", "16")
    case.topics.write(case.queue, [Sent(0, b"k", b"foreign", 9)])
    planned, last = inspect_letters(config, case.queue, RedriveOptions(skip_invalid=True), 3)
    assert (planned.records, planned.invalid) == (6, 1)
    redriven = [(each.record.value, each.is_redriven) for each in last]
    assert redriven == [(b"foreign", False), (b"7", False), (b"6", True)]
    assert last[0].letter is None
    assert last[1].letter is not None
    assert (last[1].letter.message, last[1].letter.offset) == ("error 7", 17)
    assert "ValueError: error 7" in last[1].letter.stacktrace


def test_a_limit_ends_a_run_and_the_next_one_continues(case: Case) -> None:
    for value in (b"a", b"b", b"c"):
        case.fail(value, ValueError())
    assert [case.redrive("--limit", "2")["records"] for _ in range(3)] == [2, 1, 0]
    assert case.values() == [b"a", b"b", b"c"]


def test_another_target_is_partitioned_by_key(case: Case, unique_name: Callable[[str], str]) -> None:
    target = case.topics.create(unique_name("retry"), 3)
    for key in (b"a", b"b", b"c", None):
        case.fail(key, ValueError(), 1, key, topic="gone")
    refused = case.run("redrive", case.queue)
    assert refused.code == 1
    assert "came from gone-1" in refused.err
    assert "--to" in refused.err
    assert case.redrive("--to", target)["letters"][0]["target"] == target
    by_librdkafka = case.topics.create(unique_name("retry"), 3)
    case.run("produce", by_librdkafka, "--key-separator", ":", standard_input="a:a\nb:b\nc:c\n")
    keyed = [(each.partition, each.key) for each in case.topics.read(target) if each.key is not None]
    assert keyed == [(each.partition, each.key) for each in case.topics.read(by_librdkafka)]
    assert len(case.topics.read(target)) == 4
    assert case.redrive()["records"] == 0
    itself = case.run("redrive", case.queue, "--to", case.queue)
    assert (itself.code, "cannot be the target of its own dead letters" in itself.err) == (1, True)


def test_a_record_that_is_no_dead_letter_is_named(case: Case) -> None:
    case.topics.write(case.queue, [Sent(0, b"k", b"foreign", 1, (("__streams.errors.topic", b"t"),))])
    case.fail(b"a", ValueError())
    refused = case.run("redrive", case.queue)
    assert refused.code == 1
    assert f"topic {case.queue}, partition 0, offset 0 is not a dead letter" in refused.err
    assert "__streams.errors.exception, __streams.errors.partition" in refused.err
    assert case.values() == []
    answer = case.redrive("--skip-invalid")
    assert (answer["records"], answer["invalid"]) == (1, 1)
    assert case.values() == [b"a"]


def headed(partition: bytes, offset: bytes) -> DeadLetter:
    """Return the dead letter that has these headers."""
    names = {"exception": b"e", "topic": b"t", "partition": partition, "offset": offset}
    headers = tuple((f"__streams.errors.{name}", value) for name, value in names.items())
    return read_dead_letter(ConsumerRecord("dlq", 0, 4, 1, b"k", b"v", headers))


@pytest.mark.parametrize(
    ("text", "offset"),
    [
        (b"17", 17),
        (b"-5", -5),
        (str(2**63 - 1).encode(), 2**63 - 1),
        (str(2**63).encode(), -1),
        (b"1" * 5_000, -1),
        (b"x", -1),
    ],
)
def test_an_offset_is_a_number_of_kafka_or_unknown(text: bytes, offset: int) -> None:
    assert headed(b"0", text).offset == offset


@pytest.mark.parametrize("text", [b"", b"x", b"--1", str(2**31).encode(), b"1" * 5_000])
def test_a_partition_that_is_no_number_of_kafka_makes_no_dead_letter(text: bytes) -> None:
    with pytest.raises(NotADeadLetterError, match=r"topic dlq, partition 0, offset 4 .* its partition is '.{0,99}\."):
        headed(text, b"0")


def test_the_error_of_a_punctuator_has_no_record_to_redrive(case: Case) -> None:
    case.fail(None, ValueError(), -1, None, topic=None)
    answer = case.redrive()
    assert (answer["records"], answer["without_source"]) == (0, 1)


def test_a_dead_letter_that_failed_again_keeps_the_headers_of_its_first_failure(case: Case) -> None:
    first = case.letter(b"a", ValueError("first"), topic="elsewhere")
    case.fail(b"a", KeyError("second"), headers=first.headers)
    case.redrive()
    (back,) = case.topics.read(case.source)
    assert back.headers == first.headers


def test_a_queue_that_is_created_again_begins_again(case: Case) -> None:
    case.fail(b"a", ValueError())
    case.redrive()
    case.topics.admin.delete_topics([case.queue])
    case.topics.create(case.queue)
    case.fail(b"b", ValueError())
    assert case.redrive()["records"] == 1
    assert case.values() == [b"a", b"b"]


def test_missing_topics_and_times_that_are_none_are_named(run: Run, unique_name: Callable[[str], str]) -> None:
    missing = unique_name("t")
    ended = run("redrive", missing)
    assert (ended.code, f"There is no topic '{missing}'" in ended.err) == (1, True)
    ended = run("redrive", missing, "--since", "yesterday")
    assert (ended.code, "expected a time such as" in ended.err) == (2, True)


def test_a_progress_topic_that_forgets_is_refused(case: Case) -> None:
    case.fail(b"a", ValueError())
    case.topics.create(f"penstock-redrive-{case.queue}")
    refused = case.run("redrive", case.queue)
    assert refused.code == 1
    assert "cleanup.policy=delete" in refused.err
    assert case.values() == []


def test_a_record_that_the_target_refuses_is_named_and_nothing_is_lost(
    case: Case, unique_name: Callable[[str], str]
) -> None:
    small = case.topics.create(unique_name("small"), **{"max.message.bytes": "200"})
    case.fail(b"a", ValueError(), topic=small)
    case.fail(b"b" * 1_000, ValueError(), topic=small)
    refused = case.run("redrive", case.queue)
    assert refused.code == 1
    assert small in refused.err
    assert case.values(small) == []
    case.run("topics", "alter", small, "--set", "max.message.bytes=10000")
    assert case.redrive()["records"] == 2
    assert case.values(small) == [b"a", b"b" * 1_000]


def test_dead_letters_of_a_topology_are_redriven(case: Case) -> None:
    builder = StreamsBuilder()
    builder.stream(case.source).map_values(int).to("out")
    config = {
        "default.key.serde": Serdes.string(),
        "default.value.serde": Serdes.string(),
        "processing.exception.handler": LogAndContinueProcessingExceptionHandler,
        "errors.dead.letter.queue.topic.name": case.queue,
    }
    with TopologyTestDriver(builder.build(), config) as driver:
        source = driver.create_input_topic(case.source, Serdes.string(), Serdes.string())
        source.pipe_input("k", "no number", 5)
        made = driver.create_output_topic(case.queue, Serdes.bytes(), Serdes.bytes()).read_record()
    case.topics.write(case.queue, [Sent(0, made.key, made.value, made.timestamp, made.headers)])
    assert case.redrive()["letters"][0]["exception"] == "builtins.ValueError"
    assert case.topics.read(case.source) == [Sent(0, b"k", b"no number", 5)]


def test_offsets_between_records_need_no_look_again() -> None:
    done = _Offsets()
    done.add(9_990, 20_003)
    done.add(20_005, 20_005)
    assert done.next_without(9_995) == 20_004
    assert done.next_without(20_005) == 20_006
    assert 9_989 not in done
    progress = {("id", 3, chunk): ranges for chunk, ranges in done.take_changes()}
    assert progress[("id", 3, 2)] == [(20_000, 20_003), (20_005, 20_005)]
    again = _Offsets.of({**progress, ("id", 4, 0): [(0, 9_999)]}, "id", 3)
    assert (again.next_without(0), again.next_without(10_000), 20_004 in again) == (0, 20_004, False)
    assert again.take_changes() == []


def test_records_and_what_was_written_are_one_transaction(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    case.fail(b"a", ValueError())
    ends: list[list[int]] = []

    def look(point: str, transaction: int) -> None:
        if point == "transfer.sent":
            written = [case.topics.place(name) for name in (case.source, f"penstock-redrive-{case.queue}")]
            ends.extend(list(case.topics.admin.end_offsets(written, each).values()) for each in (False, True))
            raise StreamsError("It ends before the commit.")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.tools.transfers.progress.crash_point", look)
        assert "It ends before the commit." in case.run("redrive", case.queue).err
    assert ends == [[1, 1], [0, 0]]
    assert case.redrive()["records"] == 1
    assert case.values() == [b"a"]


@pytest.mark.crash
def test_a_kill_at_any_step_loses_and_doubles_nothing(
    case: Case, embedded_broker: BrokerProcess, tmp_path: Path
) -> None:
    count = 2_100  # three transactions
    letters = [case.letter(str(number).encode(), ValueError(), number % 2) for number in range(count)]
    case.topics.write(case.queue, letters)
    orders = [*TRANSFER_POINTS, "transfer.sent@1"]
    struck = tmp_path / "struck"
    struck.mkdir()
    environment = {
        "PENSTOCK_BOOTSTRAP_SERVERS": embedded_broker.bootstrap_servers,
        "PENSTOCK_CRASH_POINTS": " ".join(orders),
        "PENSTOCK_CRASH_DIRECTORY": str(struck),
    }
    codes = [penstock(tmp_path, "redrive", case.queue, **environment).code for _ in range(len(orders) + 1)]
    assert codes == [-9] * len(orders) + [0]
    assert {path.name for path in struck.iterdir()} == set(orders)
    assert [int(value or 0) for value in case.values()] == [*range(0, count, 2), *range(1, count, 2)]


def dropped(
    case: Case, rows: Sequence[tuple[str | None, int]], windows: TimeWindows, headers: Headers = ()
) -> list[Sent]:
    """Return the records that a window count of these values and times (ms) drops."""
    builder = StreamsBuilder()
    stream = builder.stream(case.source, Consumed.with_(Serdes.string(), Serdes.string()))
    stream.group_by_key().windowed_by(windows).count(named="counts").late_to(case.queue)
    with TopologyTestDriver(builder.build(), {"application.id": "app"}) as driver:
        for value, time in rows:
            driver.pipe_bytes(case.source, b"k", None if value is None else value.encode(), time, headers)
        return [
            Sent(0, made.key, made.value, made.timestamp, made.headers)
            for made in driver.read_all_bytes()
            if made.topic == case.queue
        ]


def test_records_that_an_operator_dropped_are_redriven_without_the_headers_of_the_drop(case: Case) -> None:
    windows = TimeWindows.of_size_with_no_grace(10)
    late = dropped(case, [("new", 95), ("old", 5), ("older", 3)], windows, (("trace", b"1"),))
    case.topics.write(case.queue, late)
    case.fail(b"failed", ValueError("no number"), 1)
    answer = case.redrive("--exception", "late", "--offset", "2")
    assert answer["letters"] == [
        {
            "topic": case.source,
            "partition": 0,
            "target": case.source,
            "exception": "late",
            "message": "counts, window 0 to 10, stream time 95",
            "records": 1,
        }
    ]
    assert case.topics.read(case.source) == [Sent(0, b"k", b"older", 3, (("trace", b"1"),))]
    assert case.redrive()["records"] == 2
    assert sorted(case.values(), key=str) == [b"failed", b"old", b"older"]
    assert case.redrive()["records"] == 0


def test_a_redriven_record_that_is_late_again_keeps_one_origin(case: Case) -> None:
    windows = TimeWindows.of_size_with_no_grace(10)
    case.topics.write(case.queue, dropped(case, [("new", 95), ("old", 5)], windows))
    case.redrive()
    (back,) = case.topics.read(case.source)
    assert back == Sent(0, b"k", b"old", 5)
    (again,) = dropped(case, [("new", 95), ("old", 5)], windows, back.headers)
    assert len(again.headers) == len(dict(again.headers))


def test_a_dropped_record_without_a_known_source_stays_in_its_topic(case: Case) -> None:
    headers = dropped_headers("counts", DropReason.NULL_KEY, None, 95, None)
    case.topics.write(case.queue, [Sent(0, None, b"v", 5, headers)])
    answer = case.redrive()
    assert (answer["records"], answer["without_source"]) == (0, 1)


def test_a_dropped_record_that_failed_later_goes_back_to_the_place_of_its_failure(case: Case) -> None:
    headers = dropped_headers("counts", DropReason.LATE, TimeWindow(0, 10), 95, RecordMetadata("elsewhere", 0, 3))
    case.fail(b"a", ValueError("no number"), headers=headers)
    assert case.redrive()["letters"][0]["exception"] == "builtins.ValueError"
    (back,) = case.topics.read(case.source)
    assert back.headers == headers
