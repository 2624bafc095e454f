"""The serdes of records that wait in a store (`waiting_records`)."""

from __future__ import annotations

from typing import Any

from penstock.errors import ConfigError, StreamsError
from penstock.processor.waiting_records import SourceBytes, WaitingRecord
from penstock.record import Headers, Record, RecordMetadata
from penstock.serdes import Serde
from penstock.serdes.sequenced_key import SequencedKeySerde
from penstock.serdes.waiting_value import WaitingValueSerde
from penstock.state.api import StoreBuilder
from penstock.topic_names import changelog_name


class RecordSerdes:
    """Converts records of an operator to bytes and back, as a topic between two nodes would.

    Args:
        options: the class of the operator's options, which name the serdes, for errors.
        store_name: the name of the store, for errors.
        topic: the name of its changelog topic, for the serdes.
        key_serde: of the records.
        value_serde: of the records.
    """

    def __init__(self, options: str, store_name: str, topic: str, key_serde: Serde, value_serde: Serde) -> None:
        self._options = options
        self._store_name = store_name
        self._topic = topic
        self._key_serde = key_serde
        self._value_serde = value_serde

    def key_of(self, record: Record[Any, Any]) -> bytes | None:
        """Return the serialised key of a record; raises StreamsError if its serde cannot write it."""
        return self._written(self._key_serde, "key", record.key, record.headers)[0]

    def serialized(self, record: Record[Any, Any]) -> tuple[bytes | None, bytes | None, Headers]:
        """Return key, value and headers; raises StreamsError if a serde cannot write its part."""
        key, headers = self._written(self._key_serde, "key", record.key, record.headers)
        value, headers = self._written(self._value_serde, "value", record.value, headers)
        return key, value, headers

    def waiting(self, record: Record[Any, Any], place: RecordMetadata, source: SourceBytes | None) -> WaitingRecord:
        """Return the entry of a record.

        Args:
            record: the record.
            place: of its input record.
            source: key and value of its input record, None if unknown.

        Raises:
            StreamsError: a serde cannot write its part.
        """
        key, value, headers = self.serialized(record)
        return WaitingRecord(key, value, record.timestamp, headers, *place, source=source)

    def record_of(self, waiting: WaitingRecord) -> Record[Any, Any]:
        """Return the record of an entry; raises StreamsError if a serde cannot read its part."""
        return Record(
            self._read(self._key_serde, "key", waiting.key, waiting.headers),
            self._read(self._value_serde, "value", waiting.value, waiting.headers),
            max(waiting.timestamp, 0),
            waiting.headers,
        )

    def _written(self, serde: Serde, what: str, part: Any, headers: Headers) -> tuple[bytes | None, Headers]:
        if part is None:
            return None, headers
        try:
            return serde.serialize_record(self._topic, part, headers)
        except Exception as error:
            raise StreamsError(
                f"Store {self._store_name!r} cannot keep the {what} {part!r:.100} of a record that must wait: "
                f"{type(serde).__name__} does not write it ({error}). Name the serde of the {what}s in "
                f"{self._options}, with {what}_serde=."
            ) from error

    def _read(self, serde: Serde, what: str, data: bytes | None, headers: Headers) -> Any:
        if data is None:
            return None
        try:
            return serde.deserialize(self._topic, data, headers)
        except Exception as error:
            raise StreamsError(
                f"Store {self._store_name!r} has a waiting record whose {what} {type(serde).__name__} cannot read "
                f"({error}): run the program with the {what}_serde of {self._options} that wrote it."
            ) from error


def serdes_of_store(options: str, store: Any, application_id: str) -> RecordSerdes:
    """Return the serdes of the records in an open store of waiting records.

    Args:
        options: the class of the operator's options.
        store: the store, with SequencedKeySerde and WaitingValueSerde.
        application_id: of the application.

    Raises:
        ConfigError: a serde is missing.
    """
    return record_serdes(options, store.name, application_id, store.key_serde, store.value_serde)


def keeps_waiting_records(builder: StoreBuilder) -> bool:
    """Return whether a store keeps waiting records."""
    return isinstance(builder.value_serde, WaitingValueSerde)


def record_serdes(
    options: str, store_name: str, application_id: str, key_serde: SequencedKeySerde, value_serde: WaitingValueSerde
) -> RecordSerdes:
    """Return the serdes of the records in a store; raises ConfigError if one is missing."""
    return RecordSerdes(
        options,
        store_name,
        changelog_name(application_id, store_name),
        _inner(options, key_serde, "key", store_name),
        _inner(options, value_serde, "value", store_name),
    )


def _inner(options: str, serde: SequencedKeySerde | WaitingValueSerde, what: str, store_name: str) -> Serde:
    """Return the serde of the records' keys or values; raises ConfigError without one."""
    if serde.inner is None:
        raise ConfigError(
            f"Store {store_name!r} of waiting records has no {what} serde: name one in {options}, with {what}_serde=, "
            f"or set default.{what}.serde."
        )
    return serde.inner
