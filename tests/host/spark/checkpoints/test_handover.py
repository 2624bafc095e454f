"""A running application is handed over to a changed program: each record is processed once, whatever is killed.
Played in one process."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta

import pytest

from penstock import (
    Grouped,
    Materialized,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Serdes,
    StoreBuilder,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
)
from penstock.config import StreamsConfig
from penstock.errors import IncompatibleCheckpointError, LockError, StreamsError
from penstock.host import crashpoints
from penstock.host.spark.checkpoints.checkpoint import Checkpoint, Metadata, checkpoint_of
from penstock.host.spark.checkpoints.end_request import EndRequest
from penstock.host.spark.checkpoints.lock import CheckpointLock
from penstock.processor.api import ProcessorSupplier
from penstock.shadow import BEGINNING, NOW, ShadowOptions, SwitchCondition, SwitchOptions, SwitchResult
from penstock.shadow.pair import ShadowPair
from penstock.shadow.switching import VersionSwitch
from tests.host.spark.crashes import Crashes, KilledError
from tests.host.spark.inline import InlineQuery, failure_of
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord, OutputRecord
from tests.host.test_topologies import COUNT_OUT, TEXT, TEXT_OUT

pytestmark = [pytest.mark.one_broker, pytest.mark.partitions(2, 2)]

STRING = Serdes.string()
PAIRS = Grouped.with_(key_serde=STRING, value_serde=STRING)
Make = Callable[[str, str, Sequence[str]], Topology]


def counting(source: str, target: str, steps: Sequence[str]) -> Topology:
    """Count words; the steps change nothing, but for "doubled"."""
    builder = StreamsBuilder()
    words = builder.stream(source, TEXT).flat_map_values(str.split)
    if "doubled" in steps:
        words = words.flat_map_values(lambda word: [word, word])
    for _ in steps:
        words = words.filter(lambda _, word: bool(word))
    counts = words.group_by(lambda _, word: word, PAIRS).count(Materialized.as_("counts"))
    counts.to_stream().to(target, COUNT_OUT)
    return builder.build()


def windows(source: str, target: str, steps: Sequence[str]) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream(source, TEXT)
    for _ in steps:
        stream = stream.filter(lambda _, value: bool(value))
    within = TimeWindows.of_size_and_grace(timedelta(milliseconds=10), timedelta(milliseconds=0))
    counts = stream.group_by_key(PAIRS).windowed_by(within).count(Materialized.as_("windows"))
    closed = counts.suppress(Suppressed.until_window_closes(Suppressed.BufferConfig.unbounded()).with_name("closed"))
    closed.to_stream().map(lambda window, count: (window.key, count)).to(target, COUNT_OUT)
    return builder.build()


class Lengths(Processor):
    """Adds up the lengths of the values of each key, and forwards the sums every 10 ms of stream time."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._store = context.get_state_store("lengths")
        context.schedule(10, PunctuationType.STREAM_TIME, self._forward)

    def process(self, record: Record[str, str]) -> None:
        self._store.put(record.key, str(int(self._store.get(record.key) or 0) + len(record.value)))

    def _forward(self, now: int) -> None:
        with self._store.all() as entries:
            for key, value in entries:
                self.context.forward(Record(key, value, now))


class TimedLengths(Lengths):
    """Forwards the sums by the wall clock."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(timedelta(hours=1), PunctuationType.WALL_CLOCK_TIME, self._forward)


class LengthsSupplier(ProcessorSupplier):
    def __init__(self, made: type[Lengths]) -> None:
        self._made = made

    def get(self) -> Lengths:
        return self._made()

    def stores(self) -> tuple[StoreBuilder, ...]:
        return (Stores.key_value_store_builder(Stores.persistent_key_value_store("lengths"), STRING, STRING),)


def lengths(source: str, target: str, steps: Sequence[str]) -> Topology:
    """Add up lengths; "timed" forwards the sums by the wall clock as well."""
    builder = StreamsBuilder()
    stream = builder.stream(source, TEXT)
    for _ in steps:
        stream = stream.filter(lambda _, value: bool(value))
    made = TimedLengths if "timed" in steps else Lengths
    stream.process(LengthsSupplier(made), named="lengthener").to(target, TEXT_OUT)
    return builder.build()


class Application:
    """An application whose input arrives in pieces, one after each run of a shadow."""

    def __init__(self, runner: SparkRunner, name: str, topics: tuple[str, str], make: Make = counting) -> None:
        self.runner, self.config = runner, runner.config(name)
        self.source, self.target = topics
        self.make, self.is_idle = make, False
        self.written: list[InputRecord] = []
        self.query = InlineQuery(self.program(), self.config, runner.admin)

    def program(self, *steps: str) -> Topology:
        return self.make(self.source, self.target, steps)

    def process(self) -> None:
        """Write more input, and process it."""
        begin = len(self.written)
        piece = [
            InputRecord(f"k{n % 5}".encode(), f"{'abc'[n % 3]} {'de'[n % 2]}".encode(), 1_000 + n, n % 5 % 2)
            for n in range(begin, begin + 20)
        ]
        self.written += piece
        self.runner.write(self.source, piece)
        self.query.run_to_end()

    def run_beside(self, topology: Topology, config: StreamsConfig) -> None:
        self.runner.run_here(topology, config)
        if self.is_idle:
            return
        lock = CheckpointLock(checkpoint_of(self.config), None, "test")
        with suppress(LockError), lock:  # a switch that has the lock knows that the application has ended
            self.process()

    def switch(self, *steps: str, start: str = NOW, condition: SwitchCondition | None = None) -> SwitchResult:
        """Switch to the program of `steps`."""
        return self.switch_from((), steps, SwitchOptions(ShadowOptions(start=start), condition, watched_ms=0))

    def switch_from(self, old: Sequence[str], new: Sequence[str], options: SwitchOptions) -> SwitchResult:
        versions = [(self.program(*steps), self.config) for steps in (old, new)]
        return VersionSwitch(
            ShadowPair(versions[0], versions[1], options.comparison, self.run_beside), options
        ).switch()

    def output(self) -> Counter[OutputRecord]:
        return Counter(self.runner.read(self.target))

    def expected(self, name: str) -> Counter[OutputRecord]:
        """Return the output of the present program, if it alone had processed the input."""
        config = self.runner.config(f"{self.config['application.id']}-alone")
        self.runner.create_topics({name: 2})
        self.runner.run_here(self.make(self.source, name, ()), config)
        return Counter(self.runner.read(name))


@pytest.fixture
def application_of(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> Iterator[Callable[..., Application]]:
    made = []

    def make(program: Make = counting) -> Application:
        made.append(Application(spark_runner, application, topics, program))
        made[-1].process()
        return made[-1]

    yield make
    for each in made:
        each.query.close()


def without_partitions(records: Counter[OutputRecord]) -> Counter[tuple[bytes | None, bytes | None, int]]:
    return Counter((each.key, each.value, each.timestamp) for each in records.elements())


@pytest.mark.parametrize(
    ("make", "start"), [(counting, NOW), (counting, BEGINNING), (windows, BEGINNING), (lengths, NOW)]
)
def test_each_record_is_processed_once_over_a_switch(
    application_of: Callable[..., Application], unique_name: Callable[[str], str], make: Make, start: str
) -> None:
    app = application_of(make)
    result = app.switch("kept", start=start)
    assert result.is_switched
    processed = len(app.written)
    assert processed > 40  # the present program has run beside
    assert "taken over the checkpoint" in str(failure_of(app.process))
    app.query.change(app.program("kept"))
    app.query.run_to_end()
    app.process()
    assert without_partitions(app.output()) == without_partitions(app.expected(unique_name("alone")))
    before = Counter(each.partition for each in app.written[:processed])
    assert result.offsets == {app.source: [before[0], before[1]]}


@pytest.mark.slow
@pytest.mark.parametrize("point", crashpoints.SWITCH_POINTS)
def test_a_killed_switch_leaves_one_owner(
    application_of: Callable[..., Application],
    unique_name: Callable[[str], str],
    crashes: Callable[..., Crashes],
    point: str,
) -> None:
    app = application_of()
    crashes(at=point)
    with pytest.raises(KilledError):
        app.switch("kept")
    if point == "switch.after":
        with pytest.raises(IncompatibleCheckpointError, match="`penstock shadow switch` has replaced this program"):
            app.query.restart()
    else:
        app.query.restart()
        app.process()
        assert app.switch("kept").is_switched
    app.query.change(app.program("kept"))
    app.process()
    assert without_partitions(app.output()) == without_partitions(app.expected(unique_name("alone")))


def test_a_switch_with_a_condition_depends_on_the_comparison(application_of: Callable[..., Application]) -> None:
    app = application_of()
    app.is_idle = True
    with pytest.raises(StreamsError, match="has committed no input while both versions ran"):
        app.switch("kept", condition=SwitchCondition.EQUAL)
    app.is_idle = False
    result = app.switch("doubled", condition=SwitchCondition.EQUAL)
    assert (result.is_switched, result.epoch, result.offsets) == (False, None, {})
    assert result.comparison is not None
    assert not result.comparison.is_equal
    app.process()  # by the present program
    assert app.switch("kept", condition=SwitchCondition.EQUAL).is_switched


def test_a_switch_is_refused_again_and_goes_back(
    application_of: Callable[..., Application], unique_name: Callable[[str], str]
) -> None:
    app = application_of()
    app.switch("kept")
    with pytest.raises(
        StreamsError, match=f"The changed program already owns {app.config['application.id']}: start it"
    ):
        app.switch("kept")
    app.query.change(app.program("kept"))
    back = app.switch_from(("kept",), (), SwitchOptions(ShadowOptions(start=NOW)))
    assert back.is_switched
    with pytest.raises(IncompatibleCheckpointError, match="has replaced this program"):
        app.query.restart()
    app.query.change(app.program())
    app.process()
    assert without_partitions(app.output()) == without_partitions(app.expected(unique_name("alone")))


def test_an_unfinished_epoch_keeps_the_owner(
    application_of: Callable[..., Application], unique_name: Callable[[str], str], crashes: Callable[..., Crashes]
) -> None:
    app = application_of()
    crashes(at="transaction.after")
    with pytest.raises(KilledError):
        app.process()
    app.is_idle = True
    with pytest.raises(StreamsError, match=r"epoch \d+ of .* is not finished. Start its program again and switch"):
        app.switch("kept")
    app.query.restart()
    app.query.run_to_end()
    assert without_partitions(app.output()) == without_partitions(app.expected(unique_name("alone")))


@pytest.mark.parametrize(("old", "new", "named"), [(("timed",), (), "present"), ((), ("timed",), "changed")])
def test_punctuations_by_the_wall_clock_are_refused(
    application_of: Callable[..., Application], old: Sequence[str], new: Sequence[str], named: str
) -> None:
    app = application_of(lengths)
    app.query.change(app.program(*old))
    app.process()
    expected = f"because of the {named} one:\n  - its processor lengthener punctuates by the wall clock"
    with pytest.raises(StreamsError, match=expected):
        app.switch_from(old, new, SwitchOptions(ShadowOptions(start=NOW)))
    app.process()  # it was not asked to end


def test_a_full_disk_keeps_the_owner(
    application_of: Callable[..., Application],
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = application_of()
    write = Checkpoint.write_metadata

    def fail(checkpoint: Checkpoint, metadata: Metadata) -> None:
        if metadata.replaced is not None:
            raise OSError(errno.ENOSPC, "the disk is full")
        write(checkpoint, metadata)

    with monkeypatch.context() as patched:
        patched.setattr(Checkpoint, "write_metadata", fail)
        with pytest.raises(OSError, match="the disk is full") as raised:
            app.switch("kept")
    name = app.config["application.id"]
    assert raised.value.__notes__ == [f"{name} has ended. It belongs to the present program: start that one."]
    app.query.restart()
    app.process()
    assert app.switch("kept").is_switched
    app.query.change(app.program("kept"))
    app.process()
    assert without_partitions(app.output()) == without_partitions(app.expected(unique_name("alone")))


def test_an_application_that_does_not_end_keeps_its_state(application_of: Callable[..., Application]) -> None:
    app = application_of()
    lock = CheckpointLock(checkpoint_of(app.config), None, "test")  # of a program that does not read the request
    with (
        lock,
        pytest.raises(StreamsError, match="was asked to end, and still runs after 1 ms"),
    ):
        app.switch_from((), ("kept",), SwitchOptions(ShadowOptions(start=NOW), timeout_ms=1))
    assert not EndRequest(checkpoint_of(app.config).uri).is_sent()
    app.process()
