"""The benchmark of the broker runs on an embedded one; speed is not checked."""

from __future__ import annotations

import json
from functools import partial

import pytest

from benchmarks import broker
from benchmarks.broker import Row, produce_and_consume
from benchmarks.load_clients import ConfluentClient, JavaClient, Load
from benchmarks.running import Broker
from penstock_broker.process import BrokerProcess
from tests.support.kafka import require_kafka

CONFLUENT = ConfluentClient()


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ROUNDS", 1), ("_TRANSACTIONS", 2), ("_WARM_UP_TRANSACTIONS", 1), ("_TAILED_SECONDS", 0.1)):
        monkeypatch.setattr(broker, name, value)


def test_rows_are_measured_and_reported_as_json(
    embedded_broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--only", "transaction", "--bootstrap", embedded_broker.bootstrap_servers, "--json"]
    assert broker.main(arguments) == 0
    report = json.loads(capsys.readouterr().out)
    names = ["transaction of 100 records", "transaction of 100 records and an offset"]
    assert [one["row"] for one in report["measurements"]] == names
    assert all(one["value"] > 0 for one in report["measurements"])


@pytest.mark.kafka
@pytest.mark.xdist_group("kafka")
def test_every_client_produces_and_consumes_all_records(embedded_broker: BrokerProcess) -> None:
    require_kafka()
    running = [Broker("embedded broker", embedded_broker.bootstrap_servers, embedded_broker.pid)]
    load = Load(100, 3, "lz4", total_bytes=3_000)
    with JavaClient() as java:
        rows = [
            Row(client.name, partial(produce_and_consume, client=client, load=load)) for client in (java, CONFLUENT)
        ]
        found = [one for row in rows for one in broker.measure(row, running)]
    name = "100-byte values on 3 partitions (lz4)"
    expected = [f"{what} {name}, {client}" for client in ("Java", "confluent-kafka") for what in ("produce", "consume")]
    assert [one.row for one in found] == expected


def test_a_broker_is_started_and_its_idle_memory_and_its_work_for_tailing_consumers_are_measured(
    embedded_broker: BrokerProcess,
) -> None:
    running = [Broker("embedded broker", embedded_broker.bootstrap_servers, embedded_broker.pid)]
    rows = [row for row in broker.ROWS if row.name.startswith(("start", "20 consumers"))]
    found = [one for row in rows for one in broker.measure(row, running)]
    assert [one.unit for one in found] == ["s", "MB", "% of a core", "% of a core"]
    assert [line.split("|")[1].strip() for line in broker.table_lines(found)] == [one.row for one in found]


def test_an_unknown_row_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        broker.main(["--only", "nothing"])
    assert "rows are start, transaction of 100 records" in capsys.readouterr().err
