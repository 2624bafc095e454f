"""Output of an application in tables of a lake, on each host: restarts, resets, lost state and the end of a run."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import (
    Consumed,
    KafkaStreams,
    Produced,
    Serdes,
    State,
    StreamsBuilder,
    StreamThreadExceptionResponse,
    TimeWindows,
    Topology,
)
from penstock.config import StreamsConfig
from penstock.errors import IncompatibleCheckpointError, StreamsError
from penstock.host.open import open_host
from penstock.host.storage.directories import application_path
from penstock.plan.topology import built_topology
from tests.host.support import ON_SPARK, InputRecord, Runner, wait_for

pytest.importorskip("pyiceberg", reason="the extra lake is not installed")
pytest.importorskip("deltalake", reason="the extra lake is not installed")

from penstock.lake.columns import LakeColumns
from tests.lake.formats import FORMATS, LakeFormat, rows_of  # needs the packages

pytestmark = [
    pytest.mark.parametrize(
        "runner", [pytest.param("spark", marks=(*ON_SPARK.marks, pytest.mark.slow)), "threads"], indirect=True
    ),
    pytest.mark.one_broker,
    pytest.mark.partitions(3, 1),
]

TEXT = Serdes.string()
SETTINGS = {"penstock.lake.commit.interval.ms": 20, "processing.guarantee": "exactly_once_v2"}
MINUTES_MS = 300_000


@dataclass
class Order:
    product: str
    quantity: int


@pytest.fixture(params=FORMATS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> LakeFormat:
    """A table of each format."""
    made: LakeFormat = FORMATS[request.param](tmp_path)
    return made


def orders(source: str, lake: LakeFormat, name: str = "orders") -> Topology:
    builder = StreamsBuilder()
    texts = builder.stream(source, Consumed.with_(TEXT, TEXT))
    made = texts.map_values(lambda text: Order(text, len(text)))
    made.to_lake(lake.table(), Produced.with_(TEXT, Serdes.json(Order)).with_name(name), partitions=2)
    return builder.build()


def keys_of(lake: LakeFormat) -> list[str]:
    return [row[0] for row in rows_of(lake, "_key")]


def records(*texts: str) -> list[InputRecord]:
    return [InputRecord(text.encode(), text.encode(), 1_000, index % 3) for index, text in enumerate(texts)]


def application_of(runner: Runner, topology: Topology, config: StreamsConfig) -> KafkaStreams:
    return KafkaStreams(topology, config, **runner.options())


def test_records_are_rows_while_the_application_runs_and_after_a_restart(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    source, _ = topics
    config = runner.config(application, SETTINGS)
    for texts in (["tea", "cup", "pot"], ["jug", "mug"]):
        with application_of(runner, orders(source, lake), config):
            runner.write(source, records(*texts))
            wait_for(lambda last=texts[-1]: any(row[0] == last for row in rows_of(lake, "_key")))
    rows = rows_of(lake, "_key, product, quantity, epoch_ms(_timestamp)")
    assert rows == [(each, each, 3, 1_000) for each in ("cup", "jug", "mug", "pot", "tea")]


def test_a_pause_loses_and_repeats_no_row(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    source, _ = topics
    with application_of(runner, orders(source, lake), runner.config(application, SETTINGS)) as streams:
        runner.write(source, records("tea"))
        wait_for(lambda: keys_of(lake) == ["tea"])
        streams.pause()
        runner.write(source, records("cup", "pot"))
        streams.resume()
        wait_for(lambda: len(keys_of(lake)) >= 3)
    assert keys_of(lake) == ["cup", "pot", "tea"]


def test_a_sink_that_an_edit_renames_or_removes_has_written_all_of_its_records(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    """The new sink has another topic: the old one is copied to its end before."""
    source, target = topics
    config = runner.config(application, {**SETTINGS, "penstock.lake.commit.interval.ms": 3_600_000})
    without = StreamsBuilder()
    without.stream(source, Consumed.with_(TEXT, TEXT)).to(target)
    with application_of(runner, orders(source, lake), config) as streams:
        runner.write(source, records("tea", "cup"))
        wait_for(lambda: len(runner.read(f"{application}-orders-lake")) == 2)
        streams.edit(orders(source, lake, "bought"))
        assert keys_of(lake) == ["cup", "tea"]
        runner.write(source, records("pot"))
        wait_for(lambda: len(runner.read(f"{application}-bought-lake")) == 1)
        streams.edit(without.build())
        assert keys_of(lake) == ["cup", "pot", "tea"]
        runner.write(source, records("jug"))
        wait_for(lambda: len(runner.read(target)) == 1)
    assert keys_of(lake) == ["cup", "pot", "tea"]


def test_a_run_to_the_end_leaves_all_records_in_the_table(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    source, _ = topics
    config = runner.config(application, {**SETTINGS, "penstock.lake.commit.interval.ms": 3_600_000})
    for round_ in range(2):
        runner.write(source, records(*(f"{round_}-{number}" for number in range(50))))
        application_of(runner, orders(source, lake), config).run_to_end(MINUTES_MS)
        assert [row[0] for row in rows_of(lake, "_key")] == sorted(
            f"{before}-{number}" for before in range(round_ + 1) for number in range(50)
        )


def test_a_table_is_kept_equal_to_a_table_over_restarts_and_a_reset(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    source, _ = topics
    config = runner.config(application, SETTINGS)
    builder = StreamsBuilder()
    table = builder.table(source, Consumed.with_(TEXT, TEXT)).map_values(lambda text: Order(text, len(text)))
    table.to_lake(lake.table(), Produced.with_(TEXT, Serdes.json(Order)).with_name("orders"), partitions=2)
    topology = builder.build()

    def update(key: str, value: str | None) -> InputRecord:
        return InputRecord(key.encode(), None if value is None else value.encode(), 1_000, ord(key) % 3)

    runner.write(source, [update("a", "tea"), update("b", "cup"), update("c", "pot"), update("a", "mug")])
    application_of(runner, topology, config).run_to_end(MINUTES_MS)
    assert rows_of(lake, "_key, product") == [("a", "mug"), ("b", "cup"), ("c", "pot")]
    runner.write(source, [update("b", None), update("c", "kettle"), update("d", "jug"), update("d", None)])
    application_of(runner, topology, config).run_to_end(MINUTES_MS)
    expected = [("a", "mug", 3), ("c", "kettle", 6)]
    assert rows_of(lake, "_key, product, quantity") == expected
    reset(runner, topology, config)
    application_of(runner, topology, config).run_to_end(MINUTES_MS)
    assert rows_of(lake, "_key, product, quantity") == expected


def test_a_windowed_table_has_a_row_for_each_key_and_window(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    source, _ = topics
    config = runner.config(application, SETTINGS)
    builder = StreamsBuilder()
    texts = builder.stream(source, Consumed.with_(TEXT, TEXT)).group_by_key()
    counts = texts.windowed_by(TimeWindows.of_size_with_no_grace(10_000)).count()
    counts.to_lake(lake.table(), Produced.as_("counts"), partitions=2)
    topology = builder.build()
    for times in ((1_000, 2_000, 11_000), (12_000, 21_000)):
        runner.write(source, [InputRecord(b"a", b"", time, 0) for time in times])
        application_of(runner, topology, config).run_to_end(MINUTES_MS)
    rows = rows_of(lake, "_key, epoch_ms(_window_start), epoch_ms(_window_end), value")
    assert rows == [("a", 0, 10_000, 2), ("a", 10_000, 20_000, 2), ("a", 20_000, 30_000, 1)]


def test_a_column_of_another_type_ends_the_application(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    source, _ = topics
    config = runner.config(application, SETTINGS)
    other = pa.schema([("_key", pa.string()), ("quantity", pa.string())])
    lake.open(other)
    runner.write(source, records("tea"))
    with application_of(runner, orders(source, lake), config) as streams, pytest.raises(StreamsError, match="quantity"):
        streams.await_termination(MINUTES_MS)
    assert streams.state() is State.ERROR
    assert rows_of(lake) == []


def test_the_handler_of_uncaught_exceptions_may_continue_the_copy(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = topics
    errors: list[BaseException] = []
    table = type(lake.open(LakeColumns(TEXT, Serdes.json(Order)).schema))
    append = table.append

    def failing_once(self: Any, *args: Any) -> None:
        if not errors:
            raise StreamsError("not now")
        append(self, *args)

    def go_on(error: BaseException) -> StreamThreadExceptionResponse:
        errors.append(error)
        return StreamThreadExceptionResponse.REPLACE_THREAD

    monkeypatch.setattr(table, "append", failing_once)
    streams = application_of(runner, orders(source, lake), runner.config(application, SETTINGS))
    streams.set_uncaught_exception_handler(go_on)
    with streams:
        runner.write(source, records("tea"))
        wait_for(lambda: rows_of(lake, "_key") == [("tea",)])
    (error,) = errors
    assert re.fullmatch(r"Sink orders \(created at .*test_lake\.py:\d+\): not now", str(error))


def test_a_run_to_the_end_raises_the_error_of_the_last_copy(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    source, _ = topics
    config = runner.config(application, {**SETTINGS, "penstock.lake.commit.interval.ms": 3_600_000})
    lake.open(pa.schema([("_key", pa.int64())]))
    runner.write(source, records("tea"))
    with pytest.raises(StreamsError, match="has the column _key of the type int64"):
        application_of(runner, orders(source, lake), config).run_to_end(MINUTES_MS)


def reset(runner: Runner, topology: Topology, config: StreamsConfig) -> None:
    open_host(built_topology(topology, config.required("application.id")), config, **runner_session(runner)).reset()


def runner_session(runner: Runner) -> dict[str, Any]:
    return {"session": options["spark"]} if (options := runner.options()) else {}


def test_a_reset_processes_the_input_again_and_loses_no_output(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    """The topic is created again, so its offsets begin at 0: those in the table are of the topic before."""
    source, _ = topics
    config = runner.config(application, SETTINGS)
    runner.write(source, records("tea", "cup"))
    application_of(runner, orders(source, lake), config).run_to_end(MINUTES_MS)
    reset(runner, orders(source, lake), config)
    runner.write(source, records("pot"))
    application_of(runner, orders(source, lake), config).run_to_end(MINUTES_MS)
    assert [row[0] for row in rows_of(lake, "_key")] == ["cup", "cup", "pot", "tea", "tea"]


def test_lost_state_of_this_machine_changes_no_row(
    runner: Runner, application: str, topics: tuple[str, str], lake: LakeFormat
) -> None:
    """Spark refuses to start without its checkpoint, and the reset creates the topic again."""
    source, _ = topics
    config = runner.config(application, SETTINGS)
    runner.write(source, records("tea", "cup"))
    application_of(runner, orders(source, lake), config).run_to_end(MINUTES_MS)
    shutil.rmtree(application_path(config), ignore_errors=True)
    shutil.rmtree(config.checkpoint_directory(), ignore_errors=True)
    runner.write(source, records("pot"))
    is_on_spark = config["penstock.host"] == "spark"
    if is_on_spark:
        with pytest.raises(IncompatibleCheckpointError):
            application_of(runner, orders(source, lake), config).run_to_end(MINUTES_MS)
        reset(runner, orders(source, lake), config)
    application_of(runner, orders(source, lake), config).run_to_end(MINUTES_MS)
    keys = [row[0] for row in rows_of(lake, "_key")]
    assert keys == (["cup", "cup", "pot", "tea", "tea"] if is_on_spark else ["cup", "pot", "tea"])
