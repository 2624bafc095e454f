"""A `dsl.store.format` that changes on Spark: kills at any line, savepoints, changelog topics and removed stores."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from penstock import QueryableStoreTypes, StoreQueryParameters, StreamsBuilder, StreamsConfig, savepoints
from penstock.errors import IncompatibleCheckpointError, StreamsError
from penstock.host import crashpoints
from penstock.host.open import open_state
from tests.host.spark.crashes import ALL_POINTS, Crashes, KilledError
from tests.host.spark.inline import InlineQuery
from tests.host.spark.support import SparkRunner
from tests.host.support import InputRecord
from tests.host.test_store_format import (
    FORMATS,
    PLAIN,
    SETTINGS,
    START,
    Application,
    makes_applications,
    named,
    part,
    program,
    reduced,
)
from tests.host.threads.runner import ThreadsRunner
from tests.support.brokers import EMBEDDED_ONLY

pytestmark = EMBEDDED_ONLY

DIRECTIONS = pytest.mark.parametrize("formats", [FORMATS, FORMATS[::-1]], ids="-".join)


@pytest.fixture
def made(spark_runner: SparkRunner, unique_name: Callable[[str], str]) -> Callable[[str], Application]:
    """Makes applications that read one topic of two partitions."""
    return makes_applications(spark_runner, unique_name, 2)


def query(runner: SparkRunner, application: Application, config: StreamsConfig) -> InlineQuery:
    return InlineQuery(program(application.source, application.target), config, runner.admin)


@pytest.mark.slow
@DIRECTIONS
@pytest.mark.parametrize("point", crashpoints.TOPOLOGY_POINTS)
def test_a_change_that_fails_at_any_line_has_happened_or_not(
    spark_runner: SparkRunner,
    made: Callable[[str], Application],
    crashes: Callable[..., Crashes],
    point: str,
    formats: tuple[str, str],
) -> None:
    changing, lasting = made("changing"), made("lasting")
    before, after = (changing.config(store_format) for store_format in formats)
    spark_runner.write(changing.source, part(0))
    changing.run(formats[0])
    installed = crashes(at=point)
    with pytest.raises(KilledError):
        query(spark_runner, changing, after)
    assert installed.struck[point] == 1
    spark_runner.write(changing.source, part(1))
    if point != "topology.after":  # the old format can still continue
        query(spark_runner, changing, before).run_to_end()
    query(spark_runner, changing, after).run_to_end()
    lasting.run(formats[1])
    assert changing.stores(formats[1]) == lasting.stores(formats[1])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_output_is_exact_while_the_format_changes_and_drivers_die(
    spark_runner: SparkRunner, made: Callable[[str], Application], crashes: Callable[..., Crashes], seed: int
) -> None:
    changing, lasting = made("changing"), made("lasting")
    chosen, installed = random.Random(seed), crashes(seed, 0.05, points=ALL_POINTS)
    settings = {"processing.guarantee": "exactly_once_v2", "penstock.manifests.retained": 3}
    for number in range(8):
        spark_runner.write(changing.source, part(number))
        is_done = False
        while not is_done:
            with suppress(KilledError):
                query(spark_runner, changing, changing.config(chosen.choice(FORMATS), **settings)).run_to_end()
                is_done = True
    installed.probability = 0
    changing.run("default", **settings)
    lasting.run("default", **settings)
    assert sum(installed.struck.values()) >= 5
    assert changing.stores("default") == lasting.stores("default")
    assert sorted(changing.output()) == sorted(lasting.output())


@DIRECTIONS
def test_the_change_is_logged_and_the_next_start_rewrites_nothing(
    spark_runner: SparkRunner,
    made: Callable[[str], Application],
    formats: tuple[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    application = made("logged")
    spark_runner.write(application.source, part(0))
    application.run(formats[0])
    application.run(formats[1])
    what = "with a place for headers" if formats[1] == "headers" else "without headers"
    for store in ("table", "windows", "sessions", "final"):
        assert f"store {store} keeps its state\n" in caplog.text
        assert f"store {store}: its values are rewritten {what}" in caplog.text
    assert "store versions: its values" not in caplog.text
    caplog.clear()
    application.run(formats[1])
    assert "The program has changed" not in caplog.text


@DIRECTIONS
def test_a_savepoint_is_restored_into_another_format_with_more_partitions(
    spark_runner: SparkRunner,
    made: Callable[[str], Application],
    formats: tuple[str, str],
    tmp_path: Path,
) -> None:
    application, lasting = made("saved"), made("lasting")
    spark_runner.write(application.source, part(0))
    application.run(formats[0])
    saved = str(tmp_path / "saved")
    savepoints.take(application.config(formats[0]), saved)
    layouts = {store.name: store.layout for store in savepoints.inspect(saved).stores}
    assert layouts["table"].endswith(", with headers") == (formats[0] == "headers")
    spark_runner.add_partitions(application.source, 3)
    again = {"penstock.checkpoint.dir": str(tmp_path / "again")}
    topology, config = program(application.source, application.target), application.config(formats[1], **again)
    partitions = savepoints.partitions_of_stores(topology, config)
    savepoints.restore(saved, config, partitions)
    assert savepoints.diff(topology, config, config).headers["table"] is (formats[1] == "headers")
    application.run(formats[1], **again)
    lasting.run(formats[1])
    for name, entries in lasting.stores(formats[1]).items():
        assert spark_runner.store(config, name) == entries, name


@DIRECTIONS
def test_changelog_topics_follow_and_another_host_goes_on(
    spark_runner: SparkRunner,
    threads_runner: ThreadsRunner,
    made: Callable[[str], Application],
    formats: tuple[str, str],
    tmp_path: Path,
) -> None:
    application, lasting = made("changelogs"), made("lasting")
    settings = {"penstock.changelog.topics": True}
    for number, store_format in enumerate(formats):
        spark_runner.write(application.source, part(number))
        application.run(store_format, **settings)
        lasting.run(formats[0])
    spark_runner.write(application.source, part(2))
    lasting.run(formats[0])
    elsewhere = threads_runner.config(
        application.config(formats[0])["application.id"],
        {
            **{key: application.config(formats[0])[key] for key in ("default.key.serde", "default.value.serde")},
            "auto.offset.reset": "earliest",
            "dsl.store.format": formats[0],
            "state.dir": str(tmp_path),
        },
    )
    running = threads_runner.program(program(application.source, application.target), elsewhere)
    try:
        running.run_to_end()
    finally:
        running.close()
    assert sorted(application.output()) == sorted(lasting.output())


def test_a_savepoint_is_exported_in_its_format(
    spark_runner: SparkRunner, made: Callable[[str], Application], tmp_path: Path
) -> None:
    application = made("exported")
    spark_runner.write(application.source, part(0))
    application.run("headers")
    saved, topology = str(tmp_path / "saved"), program(application.source, application.target)
    savepoints.take(application.config("headers"), saved)
    with pytest.raises(StreamsError, match="Start the changed program once on Spark"):
        savepoints.export_to_kafka(saved, topology, application.config("default"))
    assert savepoints.export_to_kafka(saved, topology, application.config("headers")) > 0


@DIRECTIONS
def test_a_removed_store_comes_back_in_another_format(
    spark_runner: SparkRunner, made: Callable[[str], Application], formats: tuple[str, str]
) -> None:
    application, lasting = made("removed"), made("lasting")
    spark_runner.write(application.source, part(0))
    application.run(formats[0])
    builder = StreamsBuilder()
    builder.stream(application.source).to(application.target)
    spark_runner.program(builder.build(), application.config(formats[1])).close()
    spark_runner.write(application.source, part(1))
    application.run(formats[1])
    lasting.run(formats[1])
    assert application.stores(formats[1]) == lasting.stores(formats[1])


@DIRECTIONS
def test_global_stores_are_read_in_their_format_only(
    spark_runner: SparkRunner, unique_name: Callable[[str], str], formats: tuple[str, str]
) -> None:
    source, names, target = topics = [unique_name(topic) for topic in ("in", "names", "out")]
    spark_runner.create_topics(dict.fromkeys(topics, 1))
    topology, name = named(source, names, target), unique_name("app")
    written, other = (
        spark_runner.config(name, {**SETTINGS, "dsl.store.format": store_format}) for store_format in formats
    )
    spark_runner.write(names, [InputRecord(b"a", b"Ada", START)])
    spark_runner.write(source, [InputRecord(b"a", b"0", START)])
    spark_runner.run_here(topology, written)
    wanted = StoreQueryParameters.from_name_and_type("names", QueryableStoreTypes.key_value_store())
    with open_state(topology, written) as state:
        assert dict(state.store(wanted).all()) == {"a": "Ada"}
    with open_state(topology, other) as state, pytest.raises(IncompatibleCheckpointError, match="names: timestamped"):
        dict(state.store(wanted).all())


@pytest.mark.parametrize("stores", [("s", PLAIN), (PLAIN, "s")], ids=["without timestamps", "with timestamps"])
def test_a_table_with_timestamps_is_not_read_without(
    spark_runner: SparkRunner, unique_name: Callable[[str], str], application: str, stores: tuple[Any, Any]
) -> None:
    topics = source, target = unique_name("in"), unique_name("out")
    spark_runner.create_topics(dict.fromkeys(topics, 1))
    config = spark_runner.config(application, SETTINGS)
    before, after = (reduced(source, target, store) for store in stores)
    spark_runner.write(source, part(0))
    spark_runner.run_here(before, config)
    with pytest.raises(IncompatibleCheckpointError, match="'timestamped_key_value, without timestamps'"):
        InlineQuery(after, config, spark_runner.admin)
    spark_runner.run_here(before, config)
