"""The thread that copies topics: tables that do not answer, errors that end the application, and the last round."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Serdes
from penstock.client.confluent import ConfluentAdmin
from penstock.client.confluent.producer import ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import ConfigError, StreamsError
from penstock.lake.tables import LakeSink, LakeTableError
from tests.support.brokers import RunningBroker
from tests.support.waiting import until

pytest.importorskip("pyiceberg", reason="the extra lake is not installed")
pytest.importorskip("deltalake", reason="the extra lake is not installed")

from penstock.host.lake.writing import LakeWriter
from penstock.lake.delta import DeltaLakeTable
from tests.lake.formats import DeltaFormat, rows_of

pytestmark = pytest.mark.one_broker

TEXT = Serdes.string()
NODE = "orders (created at shop.py:7)"
SINK = f"Sink {NODE}"


class Writing:
    """A topic, its table, and what the thread reports."""

    def __init__(self, broker: RunningBroker, topic: str, directory: Path) -> None:
        self.topic, self.lake = topic, DeltaFormat(directory)
        self.config = StreamsConfig(
            {
                "application.id": topic,
                "bootstrap.servers": broker.bootstrap_servers,
                "penstock.lake.commit.interval.ms": 5,
                "penstock.restart.max.attempts": 4,
                "penstock.restart.backoff.ms": 1,
            }
        )
        self.errors: list[BaseException] = []
        self.ends = False
        self._admin, self._producer = ConfluentAdmin(self.config), ConfluentProducer(self.config)

    def start(self, partitions: int | None = 2, value_serde: Any = TEXT) -> LakeWriter:
        sink = LakeSink(self.lake.table(), TEXT, value_serde, partitions, node=NODE)
        return LakeWriter({self.topic: sink}, self.config, self._report)

    def _report(self, error: BaseException) -> bool:
        self.errors.append(error)
        return self.ends

    def write(self, *texts: bytes) -> None:
        for text in texts:
            self._producer.send(self.topic, text, text, 0)
        self._producer.flush()

    def partitions(self) -> int:
        return self._admin.topics()[self.topic]

    def values(self) -> list[str]:
        return [row[0] for row in rows_of(self.lake, "value")]

    def close(self) -> None:
        self._producer.close()
        self._admin.close()


@pytest.fixture
def writing(broker: RunningBroker, unique_name: Callable[[str], str], tmp_path: Path) -> Iterator[Writing]:
    made = Writing(broker, unique_name("lake"), tmp_path)
    yield made
    made.close()


def failing(monkeypatch: pytest.MonkeyPatch, times: int, error: Exception) -> list[int]:
    """Make the first commits fail; return a list with an entry for each commit that was tried."""
    tried: list[int] = []
    append = DeltaLakeTable.append

    def fail(self: DeltaLakeTable, *args: Any) -> None:
        tried.append(1)
        if len(tried) <= times:
            raise error
        append(self, *args)

    monkeypatch.setattr(DeltaLakeTable, "append", fail)
    return tried


def test_a_topic_is_created_once(writing: Writing) -> None:
    for partitions in (3, 2):
        writing.start(partitions).close(60_000)
    assert writing.partitions() == 3


def test_a_table_that_does_not_answer_is_asked_again(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, 4, OSError("the storage is away"))
    writer = writing.start()
    writing.write(b"a", b"b")
    assert until(lambda: writing.values() == ["a", "b"])
    writer.close(60_000)
    assert writing.errors == []


def test_a_table_that_never_answers_is_an_error_of_the_application(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = failing(monkeypatch, 100, OSError("the storage is away"))
    writing.ends = True
    writer = writing.start()
    writing.write(b"a")
    assert until(lambda: bool(writing.errors))
    writer.close(60_000)
    (error,) = writing.errors
    assert f"{SINK} cannot open or write the Delta table" in str(error)
    assert "OSError: the storage is away. Check the uri and the storage_options of Delta" in str(error)
    assert len(tried) == 5


def test_attempts_are_counted_anew_after_a_round_that_succeeds(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    append = DeltaLakeTable.append

    def fail_three_times(self: DeltaLakeTable, *args: Any) -> None:
        tried.append(1)
        if len(tried) % 4:
            raise OSError("the storage is away")
        append(self, *args)

    monkeypatch.setattr(DeltaLakeTable, "append", fail_three_times)
    writer = writing.start()
    for number in (1, 2):
        writing.write(b"a")
        assert until(lambda rows=number: len(writing.values()) == rows)
    writer.close(60_000)
    assert (writing.errors, len(tried)) == ([], 8)


def test_an_error_that_stays_is_reported_at_once_and_the_handler_may_go_on(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, 2, StreamsError("a column has another type"))
    writer = writing.start()
    writing.write(b"a")
    assert until(lambda: writing.values() == ["a"])
    writer.close(60_000)
    assert [str(error) for error in writing.errors] == [f"{SINK}: a column has another type"] * 2


def test_the_last_round_copies_the_rest_and_raises_its_error(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    writing.config = writing.config.overridden({"penstock.lake.commit.interval.ms": 3_600_000})
    writer = writing.start()
    writing.write(b"a")
    writer.finish()
    assert writing.values() == ["a"]
    failing(monkeypatch, 1, OSError("the storage is away"))
    writer = writing.start()
    writing.write(b"b")
    with pytest.raises(LakeTableError, match="the storage is away"):
        writer.finish()
    writing.start().finish()
    assert writing.values() == ["a", "b"]


def test_a_missing_serde_is_reported_at_the_start(writing: Writing) -> None:
    with pytest.raises(ConfigError, match="Please specify a value serde"):
        writing.start(value_serde=None)
