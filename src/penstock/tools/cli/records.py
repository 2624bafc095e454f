"""`penstock produce` and `penstock consume`: records from standard input, and to the screen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from io import TextIOWrapper
from typing import IO, Annotated, Any, Final, NamedTuple

import orjson
import typer

from penstock.client.api import NewTopic
from penstock.client.confluent import ConfluentAdmin, ConfluentConsumer, ConfluentProducer
from penstock.config import StreamsConfig, did_you_mean
from penstock.errors import SerializationError, StreamsError, UnknownTopicOrPartitionError, counted
from penstock.plan.internal_topics import check_topic_name
from penstock.record import Headers, RecordBatch, TopicPartition
from penstock.serdes.texts import NULL, SerdeName, from_json, from_text, to_json, to_text
from penstock.tools.cli.clients import TIMEOUT_MS, BrokerOptions
from penstock.tools.cli.common import INTERRUPTED, err, interruptible, option_groups
from penstock.topic_names import why_illegal
from penstock_broker.common.durations import LATEST_MS

_POLL_MS = 200
_POLL_RECORDS = 1000

_FIELDS: Final = ("key", "value", "timestamp", "headers")
"""The fields of a line for `produce --json`."""

_NO_HEADERS: Final = "NO_HEADERS"
"""The text for no headers, as in kafka-console-consumer."""

_Reader = Callable[[SerdeName, str, bytes | None], Any]
"""Returns the readable form of a value's bytes, given serde and topic."""


@dataclass(frozen=True)
class _Serdes:
    """The topic of a command, and the serdes of its records."""

    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.")]
    key: Annotated[SerdeName, typer.Option("--key-serde", help="How keys are written as bytes.")] = SerdeName.string
    value: Annotated[SerdeName, typer.Option("--value-serde", help="How values are written as bytes.")] = (
        SerdeName.string
    )
    header: Annotated[SerdeName, typer.Option("--header-serde", help="How values of headers are written as bytes.")] = (
        SerdeName.string
    )


class _Line(NamedTuple):
    """A record in a line.

    timestamp and headers are None if the line does not set them.
    """

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: Headers | None = None


class _Place(NamedTuple):
    """The place of a record; `consume --json` shows it, and `produce --json` ignores it."""

    topic: str
    partition: int
    offset: int


class RecordPart(StrEnum):
    """The parts of a record that `penstock consume` shows, in this order.

    Key and value are shown besides them.
    """

    TIMESTAMP = "timestamp"
    PARTITION = "partition"
    OFFSET = "offset"
    HEADERS = "headers"


def _with_tabs(separator: str | None) -> str | None:
    """Return `separator` with tabs for backslash and t, which shells do not replace."""
    return None if separator is None else separator.replace(r"\t", "\t")


@dataclass(frozen=True)
class _ForEachRecord:
    """The options of `penstock produce` for records whose line does not override them."""

    partition: Annotated[
        int | None,
        typer.Option("--partition", min=0, help="Partition of each record; default: as Kafka chooses it, by the key."),
    ] = None
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header of each record; may be given again."),
    ] = None
    timestamp: Annotated[
        int | None, typer.Option("--timestamp", min=0, help="Timestamp of each record (ms); default, and 0: now.")
    ] = None


@option_groups
def produce(
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            callback=_with_tabs,
            help=r"Text between key and value of a line, \t for a tab; without it, records have no keys.",
        ),
    ] = None,
    *,
    serdes: _Serdes,
    given: _ForEachRecord,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Each line is an object with key, value, timestamp, headers, as of consume --json."
        ),
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")] = False,
    brokers: BrokerOptions,
) -> None:
    """Write each line of standard input to a topic as a record; the text null means no key or no value.

    Lines are UTF-8 and end with LF, CR LF or CR. A topic that does not exist is an error without --create, unless the
    brokers have no topics at all.
    """
    if as_json and key_separator is not None:
        raise typer.BadParameter("a line of --json has its key in the object", param_hint="--key-separator")
    headers = tuple(_header(text, serdes) for text in given.headers or ())
    settings = brokers.client_config()
    _check_exists(settings, serdes.topic, create)
    producer = ConfluentProducer(settings)
    if sys.stdin.isatty():
        err.print("A line is a record; end with Ctrl-D.")
    count = 0
    try:
        lines = _lines(sys.stdin)
        for line in _json_lines(lines, serdes) if as_json else _text_lines(lines, serdes, key_separator):
            producer.send(
                serdes.topic,
                line.key,
                line.value,
                given.partition,
                given.timestamp if line.timestamp is None else line.timestamp,
                headers if line.headers is None else line.headers,
            )
            count += 1
    finally:
        producer.close()
        err.print(f"Wrote {counted(count, 'record')} to {serdes.topic}.")


def _header(text: str, serdes: _Serdes) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"expected NAME=VALUE, got {text!r}", param_hint="--header")
    return name, None if value == NULL else from_text(serdes.header, serdes.topic, value)


def _check_exists(config: StreamsConfig, topic: str, create: bool) -> None:
    """Raise UnknownTopicOrPartitionError if a topic does not exist and must not be created."""
    admin = ConfluentAdmin(config, TIMEOUT_MS)
    try:
        topics = admin.topics()
        if create and topic not in topics:
            admin.create_topics([NewTopic(topic)])
            err.print(f"Created topic {topic}.", markup=False)
        elif topic not in topics and why_illegal(topic) is None and any(not each.startswith("__") for each in topics):
            raise _unknown(admin, config, topic, topics, f"`--create` or `penstock topics create {topic}` creates it.")
    finally:
        admin.close()


def _unknown(
    admin: ConfluentAdmin, config: StreamsConfig, topic: str, topics: Iterable[str], remedy: str
) -> UnknownTopicOrPartitionError:
    check_topic_name(topic)
    admin.topic_ids([topic])  # raises if it exists but is not visible
    asked = did_you_mean(topic, topics) or "."
    return UnknownTopicOrPartitionError(
        f"There is no topic {topic!r} at bootstrap.servers={config['bootstrap.servers']}{asked} "
        f"`penstock topics list` lists the topics, {remedy}"
    )


def _lines(source: IO[str]) -> Iterator[str]:
    """Yield the lines of a text without their ends, as kafka-console-producer reads them.

    Raises StreamsError for a line that is not UTF-8.
    """
    if isinstance(source, TextIOWrapper):
        source.reconfigure(encoding="utf-8-sig", errors="surrogateescape", newline=None)
    for number, line in enumerate(source, start=1):
        try:
            line.encode()
        except UnicodeEncodeError as error:
            wrong = line[error.start].encode("utf-8", "surrogateescape").hex()
            raise StreamsError(
                f"Line {number} is not UTF-8: it has the byte 0x{wrong} after {line[: error.start][-50:]!r}. Convert it"
                " first, for example with `iconv -f LATIN1 -t UTF-8`."
            ) from error
        yield line.removesuffix("\n")


def _text_lines(lines: Iterator[str], serdes: _Serdes, key_separator: str | None) -> Iterator[_Line]:
    """Yield the record of each line; raises StreamsError for a line without separator."""
    for number, text in enumerate(lines, start=1):
        key, found, value = (NULL, "", text) if key_separator is None else text.partition(key_separator)
        if key_separator is not None and not found:
            raise StreamsError(f"Line {number} has no key: expected key, {key_separator!r}, value; got {text!r:.100}.")
        yield _Line(
            None if key == NULL else from_text(serdes.key, serdes.topic, key),
            None if value == NULL else from_text(serdes.value, serdes.topic, value),
        )


def _json_lines(lines: Iterator[str], serdes: _Serdes) -> Iterator[_Line]:
    """Yield the record of each line; raises StreamsError for a line with any other content."""
    for number, line in enumerate(lines, start=1):
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise StreamsError(f"Line {number} is not JSON: {error}; got {line!r:.100}.") from error
        if not isinstance(found, dict) or not found.keys() <= {*_FIELDS, *_Place._fields}:
            raise StreamsError(
                f"Line {number} is not a record: expected an object with {', '.join(_FIELDS)}, each of them optional; "
                f"got {line!r:.100}."
            )
        timestamp, headers = found.get("timestamp"), found.get("headers")
        if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp <= LATEST_MS):
            raise StreamsError(f"Line {number} has the timestamp {timestamp!r:.100}: expected milliseconds since 1970.")
        yield _Line(
            from_json(serdes.key, serdes.topic, found.get("key")),
            from_json(serdes.value, serdes.topic, found.get("value")),
            timestamp,
            None if headers is None else _json_headers(headers, serdes, number),
        )


def _json_headers(headers: Any, serdes: _Serdes, number: int) -> Headers:
    are_pairs = isinstance(headers, list) and all(isinstance(each, list) and len(each) == 2 for each in headers)
    if not are_pairs or not all(isinstance(name, str) for name, _ in headers):
        raise StreamsError(
            f'Line {number} has the headers {headers!r:.100}: expected a list of pairs, such as [["name", "value"]].'
        )
    return tuple((name, from_json(serdes.header, serdes.topic, value)) for name, value in headers)


@dataclass(frozen=True)
class _View:
    """The options of `penstock consume` that select records, their parts and the end."""

    parts: Annotated[
        list[RecordPart] | None, typer.Option("--print", help="Show this too, before the key; may be given again.")
    ] = None
    as_json: Annotated[
        bool, typer.Option("--json", help="Show each record as an object in JSON, with all that it has.")
    ] = False
    max_messages: Annotated[int | None, typer.Option("--max-messages", min=1, help="Exit after this many records.")] = (
        None
    )
    timeout_ms: Annotated[
        int | None, typer.Option("--timeout-ms", min=1, help="Exit when no record has arrived for this long (ms).")
    ] = None
    read_committed: Annotated[
        bool, typer.Option("--read-committed", help="Leave out records of aborted and open transactions.")
    ] = False
    separator: Annotated[
        str,
        typer.Option(
            "--key-separator",
            callback=_with_tabs,
            help=r"Text between key and value, \t for a tab.",
            show_default="a tab",
        ),
    ] = "\t"


@option_groups
def consume(
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="Show all records; without it, only new ones.")
    ] = False,
    *,
    serdes: _Serdes,
    view: _View,
    brokers: BrokerOptions,
) -> None:
    """Show the records of a topic, one per line: key, value. Runs until Ctrl-C, --max-messages or --timeout-ms."""
    if view.as_json and view.parts:
        raise typer.BadParameter("--json shows all parts of a record", param_hint="--print")
    settings = brokers.client_config()
    positions = _positions(settings, serdes.topic, from_beginning)
    consumer = ConfluentConsumer(settings, view.read_committed)
    shown = 0
    try:
        consumer.assign(positions)
        quiet_since = time.monotonic()
        with interruptible() as interrupted:
            while view.max_messages is None or shown < view.max_messages:
                most = _POLL_RECORDS if view.max_messages is None else min(_POLL_RECORDS, view.max_messages - shown)
                arrived = consumer.poll(_POLL_MS, most)
                for partition, batch in arrived:
                    if view.as_json:
                        _show_json(partition, batch, serdes)
                    else:
                        _show(partition, batch, serdes, view)
                    shown += len(batch)
                if interrupted():
                    raise typer.Exit(INTERRUPTED)
                if arrived:
                    quiet_since = time.monotonic()
                elif view.timeout_ms is not None and (time.monotonic() - quiet_since) * 1000 >= view.timeout_ms:
                    break
    finally:
        consumer.close()
        err.print(f"{counted(shown, 'record')} of {serdes.topic}.")


def _positions(config: StreamsConfig, topic: str, from_beginning: bool) -> dict[TopicPartition, int]:
    admin = ConfluentAdmin(config, TIMEOUT_MS)
    topics = admin.topics()
    if topic not in topics:
        raise _unknown(admin, config, topic, topics, f"`penstock topics create {topic}` creates it.")
    partitions = [TopicPartition(topic, number) for number in range(topics[topic])]
    return admin.beginning_offsets(partitions) if from_beginning else admin.end_offsets(partitions)


def _show(partition: TopicPartition, batch: RecordBatch, serdes: _Serdes, view: _View) -> None:
    for shown in _records(partition, batch, serdes, to_text):
        columns = [_column(part, shown) for part in RecordPart if part in (view.parts or ())]
        sys.stdout.write(view.separator.join([*columns, shown["key"], shown["value"]]) + "\n")
    sys.stdout.flush()


def _column(part: RecordPart, shown: dict[str, Any]) -> str:
    """Return a part of a record as kafka-console-consumer shows it."""
    if part is RecordPart.HEADERS:
        return ",".join(f"{name}:{value}" for name, value in shown["headers"]) or _NO_HEADERS
    return f"{part.value.capitalize()}:{shown[part.value]}"


def _show_json(partition: TopicPartition, batch: RecordBatch, serdes: _Serdes) -> None:
    for shown in _records(partition, batch, serdes, to_json):
        sys.stdout.write(orjson.dumps(shown).decode() + "\n")
    sys.stdout.flush()


def _records(partition: TopicPartition, batch: RecordBatch, serdes: _Serdes, read: _Reader) -> Iterator[dict[str, Any]]:
    """Yield all fields of each record, by name; keys and values from `read`."""
    no_headers: list[Headers] = [()] * len(batch)
    columns = (batch.offsets.tolist(), batch.timestamps.tolist(), batch.headers or no_headers, batch.keys, batch.values)
    for offset, timestamp, headers, key, value in zip(*columns, strict=True):
        where = _Place(partition.topic, partition.partition, offset)
        yield {
            **where._asdict(),
            "timestamp": timestamp,
            "headers": [(name, _read(read, "header", serdes.header, data, where)) for name, data in headers],
            "key": _read(read, "key", serdes.key, key, where),
            "value": _read(read, "value", serdes.value, value, where),
        }


def _read(read: _Reader, part: str, serde: SerdeName, data: bytes | None, where: _Place) -> Any:
    try:
        return read(serde, where.topic, data)
    except SerializationError as error:
        raise SerializationError(
            f"Cannot read the {part} {data!r:.100} of the record at topic {where.topic}, partition {where.partition}, "
            f"offset {where.offset} as {serde.value} ({str(error).rstrip('.')}). Name the serde that wrote it with "
            f"--{part}-serde."
        ) from error
