"""An application with Avro whose records, state and schemas several processes share, over the death of the broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from penstock.serdes.avro import AvroSerde
from penstock.testing import EmbeddedBroker
from tests.support.commands import penstock

PROGRAM: Final = """
import json
import os

from penstock import Consumed, Materialized, Produced, Serdes, StreamsBuilder
from penstock.serdes.avro import AvroSerde

url = os.environ["REGISTRY"]
total = AvroSerde(url, json.dumps({"type": "record", "name": "Total", "fields": [{"name": "sum", "type": "long"}]}))
builder = StreamsBuilder()
orders = builder.stream("orders", Consumed.with_(Serdes.string(), AvroSerde(url)))
totals = orders.group_by_key().aggregate(
    lambda: {"sum": 0},
    lambda key, order, so_far: {"sum": so_far["sum"] + order["price"] + order.get("tip", 0)},
    Materialized.with_(Serdes.string(), total),
)
totals.to_stream().to("totals", Produced.with_(Serdes.string(), total))
topology = builder.build()
config = {"application.id": "shop", "penstock.host": "threads"}
"""


def order_schema(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "fields": [{"name": "price", "type": "long"}, *fields]})


TIP: Final = {"name": "tip", "type": "long", "default": 0}


def run_program(broker: EmbeddedBroker, program: Path) -> None:
    ended = penstock(
        program.parent,
        "run",
        str(program),
        "--until-end",
        REGISTRY=broker.schema_registry_url,
        PENSTOCK_BOOTSTRAP_SERVERS=broker.bootstrap_servers,
        PENSTOCK_STATE_DIR=str(program.parent / "state"),
    )
    assert ended.code == 0, ended.err


def write(broker: EmbeddedBroker, schema: str, order: dict[str, Any]) -> None:
    serde: AvroSerde[Any] = AvroSerde(broker.schema_registry_url, schema)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    producer.produce("orders", serde.serialize("orders", order), b"ann")
    assert producer.flush(60) == 0


def totals(broker: EmbeddedBroker) -> list[Any]:
    serde: AvroSerde[Any] = AvroSerde(broker.schema_registry_url)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    consumer.assign([TopicPartition("totals", 0, 0)])
    messages = consumer.consume(2, 60)
    consumer.close()
    return [serde.deserialize("totals", message.value() or b"") for message in messages]


@pytest.mark.slow
def test_avro_is_read_by_other_processes_and_after_the_death_of_the_broker(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with EmbeddedBroker(schema_registry_port=0) as broker:
        for topic in ("orders", "totals"):
            broker.create_topic(topic)
        write(broker, order_schema(), {"price": 3})
        run_program(broker, program)
        broker.restart()
        write(broker, order_schema(TIP), {"price": 4, "tip": 1})
        run_program(broker, program)
        assert totals(broker) == [{"sum": 3}, {"sum": 8}]
