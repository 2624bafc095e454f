"""The broker's database: its rows, its checksum, and files that are refused."""

from __future__ import annotations

import sqlite3
import uuid
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock_broker.errors import ApiError, BrokerError
from penstock_broker.metadata_store import MetadataStore, TopicRow
from penstock_broker.process import BrokerProcess
from penstock_broker.wire.error_codes import ErrorCode

WAIT = 60


def test_a_database_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "metadata.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(BrokerError, match=r"cannot open the broker's metadata .*metadata\.sqlite"):
        BrokerProcess(tmp_path).start()


def test_records_without_their_metadata_are_refused_and_kept(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
        producer.produce("topic", b"value")
        assert producer.flush(WAIT) == 0
    metadata = tmp_path / "metadata.sqlite"
    content = metadata.read_bytes()
    for lost in (metadata.unlink, partial(metadata.write_bytes, b"")):
        lost()
        for _ in range(2):
            with pytest.raises(BrokerError, match=r"metadata\.sqlite is missing or empty, but .*topics has records"):
                BrokerProcess(tmp_path).start()
        assert any(path.stat().st_size for path in tmp_path.glob("topics/*/0/*.log"))
    metadata.write_bytes(content)
    with BrokerProcess(tmp_path):
        pass


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


def reopened(store: MetadataStore, path: Path) -> MetadataStore:
    store.close()
    return MetadataStore(path)


def test_what_was_saved_is_there_after_a_restart(path: Path) -> None:
    store = MetadataStore(path)
    rows = [TopicRow(name, uuid.uuid4(), 3, {"retention.ms": "5"}) for name in ("b", "a", "c")]
    for row in rows:
        store.save_topic(row)
    store.save_topic(rows[0]._replace(partitions=7, configs={}))
    store.delete_topic("c")
    store.save_broker_configs("", {"log.retention.ms": "9"})
    store.save_client_quotas("a", {"producer_byte_rate": 1.5})
    store.save_client_quotas("a", {})
    for _ in range(2):  # the default quotas have no id, of which a table may have many
        store.save_client_quotas(None, {"request_percentage": 2.0})
    store.note_partition_directories()
    cluster_id = store.cluster_id
    store = reopened(store, path)
    assert store.topics() == [rows[1], rows[0]._replace(partitions=7, configs={})]
    assert store.broker_configs() == {"": {"log.retention.ms": "9"}}
    assert store.client_quotas() == {None: {"request_percentage": 2.0}}
    assert (store.cluster_id, store.has_partition_directories, store.old_offsets()) == (cluster_id, True, [])
    store.save_client_quotas(None, {})
    assert store.client_quotas() == {}
    store.close()


def test_numbers_are_given_once_over_all_lives(path: Path) -> None:
    store = MetadataStore(path)
    assert [store.reserve_producer_ids(0, 10), store.reserve_producer_ids(0, 10)] == [1001, 1011]
    assert store.next_leader_epoch() == 0
    store = reopened(store, path)
    assert [store.reserve_producer_ids(5_000, 10), store.reserve_producer_ids(0, 1)] == [5_000, 5_010]
    assert store.next_leader_epoch() == 1
    store.close()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("update topic set partitions=4", "its checksum is wrong; restore the file, or remove the data directory"),
        ("delete from topic", "its checksum is wrong"),
        ("pragma user_version=3", "has format 3, this version reads format 2; use the version that wrote it"),
    ],
)
def test_a_database_that_another_program_changed_is_refused(path: Path, change: str, reason: str) -> None:
    store = MetadataStore(path)
    store.save_topic(TopicRow("t", uuid.uuid4(), 3, {}))
    store.close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(change)
    with pytest.raises(BrokerError, match=reason):
        MetadataStore(path)


def test_a_change_that_cannot_be_written_is_an_error_of_storage(path: Path) -> None:
    store = MetadataStore(path)
    store.close()  # no write succeeds from now on
    with pytest.raises(ApiError, match="cannot write the broker's metadata") as refused:
        store.save_topic(TopicRow("t", uuid.uuid4(), 3, {}))
    assert refused.value.code == ErrorCode.kafka_storage_error
