"""`penstock produce` and `penstock consume`: records from standard input to a topic, and from a topic to the screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Annotated, TextIO

import typer

from penstock.cli.clients import TIMEOUT_MS, Servers, client_config
from penstock.cli.common import INTERRUPTED, Settings, err, interruptible
from penstock.cli.serdes import NULL, SerdeName, from_text, to_text
from penstock.client.confluent import ConfluentAdmin, ConfluentConsumer, ConfluentProducer
from penstock.config import StreamsConfig
from penstock.errors import SerializationError, StreamsError, UnknownTopicOrPartitionError
from penstock.record import RecordBatch, TopicPartition

_POLL_MS = 200
_POLL_RECORDS = 1000

Topic = Annotated[str, typer.Argument(metavar="TOPIC")]
KeySerde = Annotated[SerdeName, typer.Option("--key-serde", help="How keys are written as bytes.")]
ValueSerde = Annotated[SerdeName, typer.Option("--value-serde", help="How values are written as bytes.")]


def produce(
    topic: Topic,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", help="Text between key and value of a line; without it, records have no keys."),
    ] = None,
    key_serde: KeySerde = SerdeName.string,
    value_serde: ValueSerde = SerdeName.string,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="Default: Kafka's.")] = None,
    servers: Servers = None,
    config: Settings = None,
) -> None:
    """Write each line of standard input to a topic as a record; the text null stands for no key and no value.

    A topic that is missing is made if the broker makes topics (auto.create.topics.enable).
    """
    producer = ConfluentProducer(client_config(servers, config))
    if sys.stdin.isatty():
        err.print("A line is a record; end with Ctrl-D.")
    count = 0
    try:
        for key, value in _lines(sys.stdin, key_separator):
            producer.send(
                topic,
                None if key is None or key == NULL else from_text(key_serde, topic, key),
                None if value == NULL else from_text(value_serde, topic, value),
                partition,
            )
            count += 1
    finally:
        producer.close()
        err.print(f"Wrote {count:,} record{'' if count == 1 else 's'} to {topic}.")


def _lines(source: TextIO, key_separator: str | None) -> Iterator[tuple[str | None, str]]:
    """Yield key (None without a separator) and value of each line; raises StreamsError for a line without separator."""
    for number, line in enumerate(source, start=1):
        text = line.rstrip("\n")
        if key_separator is None:
            yield None, text
            continue
        key, found, value = text.partition(key_separator)
        if not found:
            raise StreamsError(f"Line {number} has no key: expected key, {key_separator!r}, value; got {text!r:.100}.")
        yield key, value


def consume(
    topic: Topic,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Show all records; without it, only new ones.")
    ] = False,
    key_serde: KeySerde = SerdeName.string,
    value_serde: ValueSerde = SerdeName.string,
    max_messages: Annotated[
        int | None, typer.Option("--max-messages", min=1, help="Exit after this many records.")
    ] = None,
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, help="Exit when no record has arrived for this long (ms).")
    ] = None,
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out records of aborted and open transactions.")
    ] = False,
    separator: Annotated[str, typer.Option("--key-separator", help="Text between key and value.")] = "\t",
    servers: Servers = None,
    config: Settings = None,
) -> None:
    """Show the records of a topic, one per line: key, value. Runs until Ctrl-C, --max-messages or --timeout-ms."""
    settings = client_config(servers, config)
    positions = _positions(settings, topic, from_beginning)
    consumer = ConfluentConsumer(settings, read_committed)
    shown = 0
    try:
        consumer.assign(positions)
        quiet_since = time.monotonic()
        with interruptible() as interrupted:
            while max_messages is None or shown < max_messages:
                most = _POLL_RECORDS if max_messages is None else min(_POLL_RECORDS, max_messages - shown)
                arrived = consumer.poll(_POLL_MS, most)
                for partition, batch in arrived:
                    _show(partition, batch, key_serde, value_serde, separator)
                    shown += len(batch)
                if interrupted():
                    raise typer.Exit(INTERRUPTED)
                if arrived:
                    quiet_since = time.monotonic()
                elif timeout_ms is not None and (time.monotonic() - quiet_since) * 1000 >= timeout_ms:
                    break
    finally:
        consumer.close()
        err.print(f"{shown:,} record{'' if shown == 1 else 's'} of {topic}.")


def _positions(config: StreamsConfig, topic: str, from_beginning: bool) -> dict[TopicPartition, int]:
    admin = ConfluentAdmin(config, TIMEOUT_MS)
    topics = admin.topics()
    if topic not in topics:
        admin.topic_ids([topic])  # raises where it is only not to be seen
        raise UnknownTopicOrPartitionError(
            f"There is no topic {topic!r} at bootstrap.servers={config['bootstrap.servers']}; "
            f"`penstock topics list` lists the topics, `penstock topics create {topic}` creates it."
        )
    partitions = [TopicPartition(topic, number) for number in range(topics[topic])]
    return admin.beginning_offsets(partitions) if from_beginning else admin.end_offsets(partitions)


def _show(
    partition: TopicPartition, batch: RecordBatch, key_serde: SerdeName, value_serde: SerdeName, separator: str
) -> None:
    for key, value, offset in zip(batch.keys, batch.values, batch.offsets, strict=True):
        where = f"topic {partition.topic}, partition {partition.partition}, offset {offset}"
        key_text = _text("key", key_serde, partition.topic, key, where)
        sys.stdout.write(f"{key_text}{separator}{_text('value', value_serde, partition.topic, value, where)}\n")
    sys.stdout.flush()


def _text(part: str, serde: SerdeName, topic: str, data: bytes | None, where: str) -> str:
    try:
        return to_text(serde, topic, data)
    except SerializationError as error:
        raise SerializationError(
            f"Cannot read the {part} {data!r:.100} of the record at {where} as {serde.value} "
            f"({str(error).rstrip('.')}). Name the serde that wrote it with --{part}-serde."
        ) from error
