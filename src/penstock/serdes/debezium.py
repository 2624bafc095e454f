"""Change events of Debezium: the serdes of their values and keys.

A connector writes an envelope with the row before and after a change. In JSON, Kafka Connect may wrap it, with its
schema, in an object of `schema` and `payload`; in Avro the schema is in a registry. Rows keep the types that the
connector gives them, such as days since 1970 for a date, unless a class of rows says more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import StrEnum
from typing import Any, Final, Generic, cast
from uuid import UUID

import msgspec
from typing_extensions import TypeVar

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.json import JsonSerde
from penstock.serdes.objects import check_readable, is_model, is_written_by_alias, name_of
from penstock.serdes.read_back import check_read_back

R = TypeVar("R", default=Any)

_NATIVE: Final = (bytes, datetime, date, time, Decimal, UUID)
"""Types that the inner serde writes."""

_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")


class DebeziumOperation(StrEnum):
    """The operation of a change event, the field `op`."""

    CREATE = "c"
    UPDATE = "u"
    DELETE = "d"
    READ = "r"
    """A row of a snapshot."""
    TRUNCATE = "t"
    """The table was emptied, so there is no row, and the key is null."""
    MESSAGE = "m"
    """A logical message of PostgreSQL, without a row."""


@dataclass(frozen=True, slots=True)
class DebeziumTransaction:
    """The place of a change in its transaction, if the connector provides it.

    Args:
        id: of the transaction.
        total_order: the position of the event among all of the transaction, from 1.
        data_collection_order: the position among those of its table, from 1.
    """

    id: str
    total_order: int | None = None
    data_collection_order: int | None = None


@dataclass(frozen=True, slots=True)
class DebeziumChange(Generic[R]):
    """A change event: one row before and after a change.

    Args:
        op: the operation.
        before: the row before the change; None for a new row, or if the database does not log it.
        after: the row after the change; None for a deletion.
        source: where the change comes from: database, table, position in the log.
        ts_ms: when the connector processed it, in ms since the epoch.
        transaction: its place in the transaction, if known.
        ts_us: like `ts_ms`, in microseconds (Debezium 2.6 and later).
        ts_ns: like `ts_ms`, in nanoseconds (Debezium 2.6 and later).
        more: other fields of the envelope by name, such as `message`.
    """

    op: DebeziumOperation
    before: R | None = None
    after: R | None = None
    source: Mapping[str, Any] = field(default_factory=dict)
    ts_ms: int | None = None
    transaction: DebeziumTransaction | None = None
    ts_us: int | None = None
    ts_ns: int | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


_FIELDS: Final = frozenset(DebeziumChange.__dataclass_fields__) - {"more"}


def row_of(change: DebeziumChange[R] | None) -> R | None:
    """Return the row after `change`, or None for a deletion and a tombstone.

    `stream.map_values(row_of).to_table()` is the table of the database.
    """
    return None if change is None else change.after


class DebeziumSerde(Serde[DebeziumChange[R]], Generic[R]):
    """Change events of Debezium as `DebeziumChange`; a tombstone stays None.

    It reads JSON with and without `schema` and `payload`, and writes it without.

    Args:
        row: a dataclass, msgspec struct, TypedDict or pydantic model of the rows; None for dicts.
        inner: the serde that reads the envelope as a dict, such as an AvroSerde without type; None for JSON.

    Raises:
        TypeError: objects of `row` cannot be read, or `inner` is no serde.
    """

    def __init__(self, row: type[R] | None = None, *, inner: Serde[Any] | None = None) -> None:
        if row is not None and not is_model(row):
            check_readable(row, f"DebeziumSerde({name_of(row)})")
        if inner is not None and not isinstance(inner, Serde):
            raise TypeError(f"Expected a Serde as inner of DebeziumSerde, got {inner!r}: write inner=AvroSerde(...).")
        self._row = row
        self._inner = _EnvelopeSerde() if inner is None else inner

    @property
    def uses_headers(self) -> bool:
        """Whether the inner serde uses the headers."""
        return self._inner.uses_headers

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the envelope."""
        return (self._inner,)

    @property
    def repeatable(self) -> bool:  # type: ignore[override]  # the base has a constant
        """Whether a value that was read survives another round trip unchanged."""
        return self._inner.repeatable and not is_model(self._row)

    @property
    def writes_headers(self) -> bool:
        """Whether the inner serde changes the headers of a record."""
        return self._inner.writes_headers

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the change.

        Raises SerializationError if the inner serde cannot write it, or it would not be read back as an equal value.
        """
        envelope = self._checked_envelope(topic, value)
        data = self._inner.serialize(topic, envelope, headers)
        self._check_rows(topic, value, data, headers)
        return data

    def serialize_record(self, topic: str, value: Any, headers: Headers = ()) -> tuple[bytes, Headers]:
        """Serialise the change, and return the headers of its record from the inner serde."""
        envelope = self._checked_envelope(topic, value)
        data, written = self._inner.serialize_record(topic, envelope, headers)
        self._check_rows(topic, value, data, written)
        return data, written

    def _checked_envelope(self, topic: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, DebeziumChange):
            raise TypeError(
                f"Cannot write to {topic!r}: expected a DebeziumChange, got {type(value).__name__} {value!r:.100}; "
                "name another serde for rows, such as Serdes.json()."
            )
        return self._envelope(value)

    def _check_rows(self, topic: str, change: DebeziumChange[Any], data: bytes, headers: Headers) -> None:
        if self._row is not None:
            check_read_back(topic, change, self.deserialize(topic, data, headers), self._row)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> DebeziumChange[R]:
        """Deserialise the change, or None for an envelope whose payload is null.

        Raises SerializationError if `data` is not an envelope of Debezium, or its rows are not of the class.
        """
        envelope = _payload(self._inner.deserialize(topic, data, headers))
        try:
            return cast(DebeziumChange[R], None) if envelope is None else self._change(envelope)
        except (ValueError, TypeError, LookupError) as error:
            raise SerializationError(
                f"Cannot read {data[:100]!r} from {topic!r} as a change event of Debezium: {error}. A topic of rows "
                "alone, as from the transform ExtractNewRecordState, is read with Serdes.json()."
            ) from error

    def _envelope(self, change: DebeziumChange[Any]) -> dict[str, Any]:
        transaction = change.transaction
        envelope = {
            "before": self._plain(change.before),
            "after": self._plain(change.after),
            "source": dict(change.source),
            "op": str(change.op),
            "ts_ms": change.ts_ms,
            "transaction": None if transaction is None else msgspec.to_builtins(transaction),
        }
        finer = {name: getattr(change, name) for name in _TIMES[1:] if getattr(change, name) is not None}
        return {**envelope, **finer, **change.more}

    def _plain(self, row: Any) -> Any:
        if row is None or self._row is None:
            return row
        if is_model(self._row):
            return row.model_dump(by_alias=is_written_by_alias(self._row), round_trip=True)
        return msgspec.to_builtins(row, builtin_types=_NATIVE)

    def _change(self, envelope: Any) -> DebeziumChange[R]:
        if not isinstance(envelope, Mapping) or "op" not in envelope:
            raise ValueError("expected an object with op, before, after and source")
        transaction = envelope.get("transaction")
        return DebeziumChange(
            DebeziumOperation(envelope["op"]),
            self._made(envelope.get("before")),
            self._made(envelope.get("after")),
            envelope.get("source") or {},
            envelope.get("ts_ms"),
            None if transaction is None else msgspec.convert(transaction, DebeziumTransaction),
            envelope.get("ts_us"),
            envelope.get("ts_ns"),
            {name: value for name, value in envelope.items() if name not in _FIELDS},
        )

    def _made(self, row: Any) -> Any:
        type_: Any = self._row
        if row is None or type_ is None:
            return row
        return type_.model_validate(row) if is_model(type_) else msgspec.convert(row, type_)


class DebeziumKeySerde(Serde[R], Generic[R]):
    """Keys of Debezium's records in JSON: the columns of the primary key.

    It reads keys with and without `schema` and `payload`, and writes them without.

    Args:
        key: the serde of the columns as JSON, such as `Serdes.json(OrderKey)`; None for dicts.
    """

    uses_headers = False

    def __init__(self, key: Serde[R] | None = None) -> None:
        self._key: Serde[Any] = JsonSerde() if key is None else key

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the columns."""
        return (self._key,)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the key without its schema."""
        return self._key.serialize(topic, value)

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> R:
        """Deserialise the key; raises SerializationError if `data` is not JSON of its columns."""
        found = _JSON.deserialize(topic, data)
        columns = _payload(found)
        key: R = self._key.deserialize(topic, data if columns is found else _JSON.serialize(topic, columns))
        return key


class _EnvelopeSerde(Serde[Any]):
    """Envelopes as JSON: all types that msgspec writes."""

    uses_headers = False
    repeatable = True

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        try:
            return msgspec.json.encode(value, order="deterministic")
        except (TypeError, ValueError, OverflowError) as error:
            raise SerializationError(f"Cannot write {value!r:.200} to {topic!r} as JSON: {error}.") from error

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        return _JSON.deserialize(topic, data)


_JSON: Final = JsonSerde()


def _payload(value: Any) -> Any:
    """Return the payload of a value that Kafka Connect wrote with its schema, or `value`."""
    return value["payload"] if isinstance(value, dict) and value.keys() == {"schema", "payload"} else value
