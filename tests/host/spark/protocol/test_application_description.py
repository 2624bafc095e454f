"""The application description as workers get it: user functions, the driver's module path, and nothing that a worker
does not need."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest

from penstock import (
    BufferConfig,
    Joined,
    JoinWindows,
    KStream,
    Materialized,
    Printed,
    Processor,
    Record,
    Serdes,
    SessionWindows,
    SlidingWindows,
    Stores,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    Topology,
    ValueTransformerWithKey,
)
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.spark.protocol.application_description import (
    ApplicationDescription,
    dump_description,
    load_description,
)
from penstock.host.spark.protocol.placement import place
from tests.host import test_topologies
from tests.host.test_topologies import word_count
from tests.support.sources import SOURCES

_WORKER = """
import sys
from pathlib import Path
from penstock.host.spark.worker import sink, source, stage
from penstock.host.spark.protocol.application_description import load_description
from penstock.plan.subtopology import TaskId
from penstock.state.memory import MemoryBase
from penstock.task.stream_task import StreamTask
for file in sys.argv[1:]:
    description = load_description(Path(file).read_bytes())
    for spec in description.topology.subtopologies:
        task = StreamTask(spec, TaskId(spec.id, 0), description.config, MemoryBase(), description.topic_partitions)
        task.initialize()
print(" ".join(sorted(name for name in sys.modules if name.startswith(("penstock", "pandas", "lmdb", "pyspark")))))
"""


STRING = Serdes.string()


def description_of(topology: Topology, tmp_path: Path) -> ApplicationDescription:
    built = topology.build("app")
    topics = {"in": 2, "other": 2, "out": 2}
    settings = {"application.id": "app", "bootstrap.servers": "localhost:1", "default.value.serde": STRING}
    return ApplicationDescription(
        config=StreamsConfig({**settings, "default.key.serde": STRING}, environment={}),
        topology=built,
        placement=place(built, topics, parallelism=2),
        topic_partitions=topics,
        begin={"in": [0, 0]},
        checkpoint=str(tmp_path),
        checkpoint_id="c",
        query_id="q",
        generation=1,
        transactional=False,
        control_directory=str(tmp_path),
    )


def windows(stream: KStream, other: KStream) -> None:
    grouped = stream.group_by_key()
    tumbling = grouped.windowed_by(TimeWindows.of_size_and_grace(10, 5))
    tumbling.count()
    tumbling.reduce(max).suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))
    sliding = grouped.windowed_by(SlidingWindows.of_time_difference_and_grace(10, 5))
    sliding.reduce(max)
    sliding.count()


def sessions(stream: KStream, other: KStream) -> None:
    grouped = stream.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(10, 5))
    grouped.count()
    grouped.reduce(max).suppress(Suppressed.until_time_limit(5, BufferConfig.max_records(9)))


def aggregations(stream: KStream, other: KStream) -> None:
    grouped = stream.group_by(lambda key, value: value)
    grouped.reduce(max).to_stream().to("out")
    cogrouped = grouped.cogroup(lambda key, value, text: value).cogroup(
        other.group_by_key(), lambda key, value, text: ""
    )
    cogrouped.aggregate(str)
    cogrouped.windowed_by(SlidingWindows.of_time_difference_and_grace(10, 5)).aggregate(str)


def stream_joins(stream: KStream, other: KStream) -> None:
    near = JoinWindows.of_time_difference_and_grace(10, 5)
    stream.outer_join(other, lambda one, two: f"{one}{two}", near).to("out")
    stream.left_join(other, lambda key, one, two: f"{one}{two}", near).print(Printed.to_sys_out())
    stream.join(stream, lambda one, two: one + two, near)


def tables(stream: KStream, other: KStream) -> None:
    versions = Stores.persistent_versioned_key_value_store("versions", 1000)
    one, two = stream.to_table(), other.to_table(materialized=Materialized.as_(versions))
    stream.join(two, lambda value, row: value + row, joined=Joined.with_(grace_period_ms=5)).to("out")
    joined = one.outer_join(two, lambda mine, yours: f"{mine}{yours}")
    joined.filter(lambda key, value: True).map_values(str).group_by(lambda key, value: (value, key)).count()
    joined.transform_values(Unchanged).group_by(lambda key, value: (value, key)).reduce(max, min)


class Unchanged(ValueTransformerWithKey):
    def transform(self, key: str, value: str) -> str:
        return value


FAMILIES = (windows, sessions, aggregations, stream_joins, tables)


def streams_of(family: Callable[[KStream, KStream], None]) -> Topology:
    builder = StreamsBuilder()
    family(builder.stream("in"), builder.stream("other"))
    return builder.build()


def test_a_worker_loads_neither_the_dsl_nor_the_lowering(tmp_path: Path) -> None:
    files = []
    mains = test_topologies, sys.modules[__name__]
    for main in mains:
        cloudpickle.register_pickle_by_value(main)  # as functions of the user's main program are
    try:
        for number, topology in enumerate([word_count("in", "out"), *map(streams_of, FAMILIES)]):
            files.append(tmp_path / f"description-{number}")
            files[-1].write_bytes(dump_description(description_of(topology, tmp_path)))
    finally:
        for main in mains:
            cloudpickle.unregister_pickle_by_value(main)
    ran = subprocess.run(
        [sys.executable, "-c", _WORKER, *map(str, files)],
        env={"PYTHONPATH": SOURCES},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    loaded = set(ran.stdout.split())
    assert "penstock.task.stream_task" in loaded
    unwanted = {
        "penstock.dsl",
        "penstock.plan.lower",
        "penstock.streams",
        "penstock_broker.config",
        "penstock_broker.server",
        "penstock.testing",
        "pandas",
    }
    assert not unwanted & loaded
    assert "penstock.processor.session_aggregate" in loaded


def test_functions_that_cannot_be_imported_go_by_value(tmp_path: Path) -> None:
    description = description_of(word_count("in", "out"), tmp_path)
    data = dump_description(description)
    loaded = load_description(data)
    assert loaded.topology.subtopologies[0].source_topics == ("in",)
    assert load_description(data) is loaded  # unpickled once a process


class Holding(Processor):
    def __init__(self, held: object) -> None:
        self.held = held

    def process(self, record: Record[str, str]) -> None:
        raise NotImplementedError


def test_what_cannot_be_pickled_is_an_error_at_start(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w") as file:
        topology = Topology().add_source("s", "in").add_processor("p", lambda: Holding(file), "s")
        with pytest.raises(StreamsError, match=r"cannot be sent to Spark's workers: .*such as a connection"):
            dump_description(description_of(topology.add_sink("k", "out", "p"), tmp_path))


def test_a_process_keeps_the_descriptions_of_several_queries(tmp_path: Path) -> None:
    descriptions = [dump_description(description_of(word_count("in", f"out{number}"), tmp_path)) for number in range(4)]
    loaded = [load_description(each) for each in descriptions]
    assert [load_description(each) for each in descriptions] == loaded


def test_tasks_that_run_at_the_same_time_share_the_record_cache(tmp_path: Path) -> None:
    description = description_of(word_count("in", "out"), tmp_path)
    description = replace(description, config=description.config.overridden({"statestore.cache.max.bytes": 1_000}))
    for partitions, each in (((1, 1), 1_000), ((2, 3), 333), ((2_000, 1), 0)):
        assert replace(description, placement=replace(description.placement, partitions=partitions)).cache_bytes == each
