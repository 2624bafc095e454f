"""What each version of Spark has, and what stands in for what an older one lacks. The newest Spark plays the older ones
here; `tests/packaging/test_oldest_spark.py` runs on the oldest itself."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.datasource import InputPartition, WriterCommitMessage

from penstock.host.spark import versions
from penstock.host.spark.driver import running_query
from penstock.host.spark.protocol.rows import CONTROL, DATA, Row
from penstock.host.spark.versions import FEATURES, Offset, StreamReader, StreamWriter, features_of
from tests.host.spark.support import SparkRunner
from tests.host.support import lines
from tests.host.test_topologies import final, word_count
from tests.support.frames import rows_for_all


@pytest.fixture
def as_on_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process do everything that Spark 4.0 does not do itself."""
    oldest = replace(features_of("4.0.0"), checkpoint_package=FEATURES.checkpoint_package)
    for module in (versions, running_query):
        monkeypatch.setattr(module, "FEATURES", oldest)


def test_arrow_functions_do_not_warn_about_pandas() -> None:
    class Frame:
        def mapInArrow(self, function: object, schema: str) -> str:  # noqa: N802 (the name of pyspark)
            warnings.warn("PySpark does not yet fully support pandas >= 3.0.0.", FutureWarning, stacklevel=1)
            warnings.warn("another", FutureWarning, stacklevel=1)
            return schema

    with pytest.warns(FutureWarning) as caught:
        assert versions.map_in_arrow(cast("DataFrame", Frame()), lambda batches: iter(batches), "x INT") == "x INT"
    assert [str(warning.message) for warning in caught] == ["another"]


@pytest.mark.parametrize(
    ("version", "admission_control", "arrow_stream_writer", "repartition_by_id"),
    [
        ("4.0.0", False, False, False),
        ("4.1.0.dev1", False, True, True),
        ("4.1.4", False, True, True),
        ("4.2.0", True, True, True),
        ("4.10.0", True, True, True),
    ],
)
def test_what_a_version_has(
    version: str, admission_control: bool, arrow_stream_writer: bool, repartition_by_id: bool
) -> None:
    found = features_of(version)
    assert found.admission_control == admission_control
    assert found.arrow_stream_writer == arrow_stream_writer
    assert found.repartition_by_id == repartition_by_id


def test_the_installed_spark_has_what_its_version_says() -> None:
    assert hasattr(DataFrame, "repartitionById") == FEATURES.repartition_by_id


def test_a_frame_that_no_library_reads_hands_over_what_it_collects() -> None:
    class Frame:
        def toArrow(self) -> pa.Table:  # noqa: N802 (the name of pyspark)
            return pa.table({"key": ["a"]})

    frame: Any = Frame()
    assert versions.readable_by_libraries(frame) is frame
    assert rows_for_all(frame) == [{"key": "a"}]


class Numbers(StreamReader):
    """Has an offset for each number."""

    def __init__(self) -> None:
        self.committed: list[int] = []

    def first_offset(self) -> Offset:
        return {"at": 5}

    def fix_end(self) -> None:
        """Has no end."""

    def next_offset(self, start: Offset) -> Offset:
        return {"at": start["at"] + 1}

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return [InputPartition(number) for number in range(start["at"], end["at"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"number": [partition.value]})

    def commit(self, end: Offset) -> None:
        self.committed.append(end["at"])

    def stop(self) -> None:
        """Has nothing open."""


@pytest.mark.usefixtures("as_on_the_oldest")
def test_a_spark_that_does_not_say_where_a_batch_begins_gets_one_batch_after_another() -> None:
    source = Numbers()
    reader: Any = versions.stream_reader(source)
    assert reader.latestOffset() == {"at": 6}
    assert reader.initialOffset() == {"at": 5}
    assert reader.latestOffset() == {"at": 6}, "nothing was handed out"
    assert [each.value for each in reader.partitions({"at": 5}, {"at": 6})] == [5]
    assert reader.latestOffset() == {"at": 7}
    reader.commit({"at": 6})
    assert reader.latestOffset() == {"at": 7}
    assert source.committed == [6]


class Kept(StreamWriter):
    """Keeps the rows that it is given."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def write(self, rows: Iterable[Row]) -> WriterCommitMessage:
        self.rows.extend(rows)
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Has nothing to commit."""


@pytest.mark.usefixtures("as_on_the_oldest")
def test_a_sink_takes_rows_as_objects_of_spark() -> None:
    kept = Kept()
    versions.stream_writer(kept).write(iter([(0, CONTROL, 1, 2, 3, 4, b"five"), (1, DATA, 0, 0, 0, 1, b"")]))  # type: ignore[arg-type]  # a Row of Spark is a tuple
    assert kept.rows == [Row(CONTROL, 1, 2, 3, 4, b"five"), Row(DATA, 0, 0, 0, 1, b"")]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
@pytest.mark.usefixtures("as_on_the_oldest")
@pytest.mark.parametrize("partitions", [1, 2, 7, 32])
def test_rows_come_to_the_partitions_that_they_name(spark_runner: SparkRunner, partitions: int) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for batch in batches:
            named = batch.column(0).to_pylist()
            yield pa.RecordBatch.from_pydict({"named": named, "found": [context.partitionId()] * len(named)})

    rows = spark_runner.session.range(3 * partitions).selectExpr(f"CAST(id % {partitions} AS INT) AS dst")
    shuffled = versions.repartition_by_id(rows, partitions, "dst").mapInArrow(where, "named long, found long")
    assert sorted(map(tuple, shuffled.collect())) == [(n // 3, n // 3) for n in range(3 * partitions)]


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
@pytest.mark.one_broker
@pytest.mark.usefixtures("as_on_the_oldest")
def test_an_application_runs_to_the_end_and_continues_without_what_the_oldest_spark_lacks(
    spark_runner: SparkRunner, application: str, topics: tuple[str, str]
) -> None:
    config = spark_runner.config(application, {"penstock.batch.max.bytes": 1024})
    for _ in range(2):
        spark_runner.write(topics[0], lines(["a b", "b" * 500] * 30, partitions=3))
        spark_runner.run(word_count(*topics), config)
    assert final(spark_runner.read(topics[1])) == {"a": 60, "b": 60, "b" * 500: 60}
    assert spark_runner.manifest(config).epoch > 3, "it stops at the end, not behind the first epoch"
