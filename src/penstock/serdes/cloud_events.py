"""The serdes of CloudEvents 1.0 for both content modes of its Kafka binding.

In binary mode the value of a record is the data, and the attributes are headers (`ce_id`, `content-type`). In
structured mode the value is one JSON object with attributes and data.

Data is a JSON value, a text or bytes, by `datacontenttype`, or an object of an inner serde.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, Generic

import msgspec
from typing_extensions import TypeVar

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde
from penstock.serdes.cloud_event import JSON_TYPE, CloudEvent, is_json, is_text
from penstock.serdes.headers import HeaderSerde, last_header
from penstock.serdes.json import JsonSerde

D = TypeVar("D", default=Any)

CONTENT_TYPE: Final = "content-type"
_PREFIX: Final = "ce_"
_STRUCTURED: Final = "application/cloudevents"
_JSON_EVENT: Final = "application/cloudevents+json; charset=UTF-8"
_TEXTS: Final = ("type", "source", "id", "subject", "dataschema", "specversion")
_MEMBERS: Final = frozenset({*_TEXTS, "time", "datacontenttype", "data", "data_base64"})
_JSON: Final = JsonSerde()


class StructuredCloudEventSerde(Serde[CloudEvent[D]], Generic[D]):
    """CloudEvents in structured mode: one JSON object per event (class of its SDK: CloudEventSerializer).

    The header `content-type` of records that sinks write is `application/cloudevents+json`. The serde suits stores as
    well, since a value needs no headers.

    Args:
        data: the serde of the data; None for JSON values, texts and bytes by `datacontenttype`.
    """

    uses_headers = False
    writes_headers = True

    def __init__(self, data: Serde[D] | None = None) -> None:
        self._data = data

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the data; None without one."""
        return (self._data,)

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Serialise the event as JSON; raises SerializationError if its data does not fit `datacontenttype`."""
        event = _checked(topic, value)
        members: dict[str, Any] = {**dict(_attributes(event)), **event.extensions}
        if event.datacontenttype is not None:
            members["datacontenttype"] = event.datacontenttype
        members |= _data_members(topic, event, self._data)
        return msgspec.json.encode(members)

    def serialize_record(self, topic: str, value: Any, headers: Headers = ()) -> tuple[bytes, Headers]:
        """Serialise the event, and return the headers with its media type and without attributes of other events."""
        others = (each for each in headers if not _is_own(each[0]))
        return self.serialize(topic, value), (*others, (CONTENT_TYPE, _JSON_EVENT.encode()))

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> CloudEvent[D]:
        """Deserialise the event; raises SerializationError if `data` is not an event in JSON."""
        members = _JSON.deserialize(topic, data)
        if not isinstance(members, dict) or "specversion" not in members:
            raise SerializationError(
                f"Cannot read {data[:100]!r} from {topic!r} as a CloudEvent in structured mode: expected a JSON object "
                "with specversion, type, source and id. CloudEventSerde reads binary mode too."
            )
        return _event(topic, members, _data_in(topic, members, self._data))


class CloudEventSerde(HeaderSerde[CloudEvent[D]], Generic[D]):
    """CloudEvents in binary mode: attributes are headers of the record (class of its SDK: CloudEventSerializer).

    It reads both modes, by the header `content-type`. Attributes of extensions are read as texts in binary mode.

    Args:
        data: the serde of the data; None for JSON values, texts and bytes by `datacontenttype`.
    """

    def __init__(self, data: Serde[D] | None = None) -> None:
        self._data = data
        self._structured = StructuredCloudEventSerde(data)

    @property
    def inner_serdes(self) -> tuple[Serde | None, ...]:
        """The serde of the data; None without one."""
        return (self._data,)

    def is_own(self, name: str) -> bool:
        """Return whether the header `name` is an attribute of an event, or its media type."""
        return _is_own(name)

    def write(self, topic: str, value: Any) -> tuple[bytes, Headers]:
        """Return the data of the event, and its attributes as headers.

        Raises SerializationError if the data does not fit `datacontenttype`, and for an event without data: in binary
        mode that is a record with the value null, which deletes its key.
        """
        event = _checked(topic, value)
        if event.data is None:
            raise SerializationError(
                f"Cannot write {event!r:.200} to {topic!r}: in binary mode an event without data is a null value, "
                "which deletes its key. Give it data, or write it with StructuredCloudEventSerde."
            )
        media_type, data = _content(topic, event, self._data)
        own = [(_PREFIX + name, text.encode()) for name, text in _attributes(event)]
        own += [(_PREFIX + name, _as_text(each).encode()) for name, each in event.extensions.items()]
        return data, (*own, *(() if media_type is None else ((CONTENT_TYPE, media_type.encode()),)))

    def read(self, topic: str, data: bytes, headers: Headers) -> CloudEvent[D]:
        """Return the event; raises SerializationError if the headers lack a required attribute."""
        media_type = last_header(headers, CONTENT_TYPE)
        content_type = None if media_type is None else _text(topic, CONTENT_TYPE, media_type)
        if content_type is not None and content_type.lower().startswith(_STRUCTURED):
            return self._structured.deserialize(topic, data)
        members: dict[str, Any] = {
            name.removeprefix(_PREFIX): _text(topic, name, value)
            for name, value in headers
            if name.startswith(_PREFIX) and value is not None
        }
        members["datacontenttype"] = content_type
        return _event(topic, members, _value_of(topic, data, content_type, self._data))


def _is_own(name: str) -> bool:
    return name == CONTENT_TYPE or name.startswith(_PREFIX)


def _checked(topic: str, value: Any) -> CloudEvent[Any]:
    if not isinstance(value, CloudEvent):
        raise TypeError(
            f"Cannot write to {topic!r}: expected a CloudEvent, got {type(value).__name__} {value!r:.100}; name "
            "another serde, or convert the value with map_values()."
        )
    return value


def _attributes(event: CloudEvent[Any]) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of the attributes, without the media type and extensions."""
    for name in _TEXTS:
        if getattr(event, name) is not None:
            yield name, getattr(event, name)
    if event.time is not None:
        yield "time", event.time.isoformat().replace("+00:00", "Z")


def _as_text(value: Any) -> str:
    """Return an extension's value in the canonical text of its type."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            return b64encode(value).decode()
        case _:
            return str(value)


def _text(topic: str, name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise SerializationError(f"Cannot read from {topic!r} the header {name!r} of a record: {error}.") from error


def _content(topic: str, event: CloudEvent[Any], inner: Serde | None) -> tuple[str | None, bytes]:
    """Return the media type and the bytes of an event's data."""
    media_type, data = event.datacontenttype, event.data
    if inner is not None:
        return media_type or JSON_TYPE, _checked_json(topic, event, inner.serialize(topic, data))
    if media_type is None and isinstance(data, bytes):
        return None, data
    if is_json(media_type):
        return media_type or JSON_TYPE, _JSON.serialize(topic, data)
    expected = str if is_text(str(media_type)) else bytes
    if not isinstance(data, expected):
        raise SerializationError(
            f"Cannot write {event!r:.200} to {topic!r}: data of the type {media_type} is {expected.__name__}, not "
            f"{type(data).__name__}. Change datacontenttype or the data, or give the serde an inner one."
        )
    return media_type, data.encode() if isinstance(data, str) else data


def _checked_json(topic: str, event: CloudEvent[Any], data: bytes) -> bytes:
    """Return `data`; raises SerializationError if it is not JSON although the event declares it."""
    if is_json(event.datacontenttype):
        try:
            msgspec.json.decode(data, type=msgspec.Raw)
        except msgspec.DecodeError as error:
            raise SerializationError(
                f"Cannot write {event!r:.200} to {topic!r}: its data is not JSON: {error}. Set datacontenttype to the "
                "media type that the inner serde writes."
            ) from error
    return data


def _value_of(topic: str, data: bytes, media_type: str | None, inner: Serde | None) -> Any:
    """Return the data of an event in the form of its media type."""
    if inner is not None:
        return inner.deserialize(topic, data)
    if media_type is None:
        return data
    if is_json(media_type):
        return _JSON.deserialize(topic, data)
    if not is_text(media_type):
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r} as {media_type}: {error}.") from error


def _data_members(topic: str, event: CloudEvent[Any], inner: Serde | None) -> Mapping[str, Any]:
    """Return the members of an event's JSON for its data."""
    if event.data is None:
        return {}
    media_type, data = _content(topic, event, inner)
    declared = {} if media_type is None else {"datacontenttype": media_type}
    if media_type is not None and is_json(media_type):
        return declared | {"data": msgspec.Raw(data)}
    if media_type is not None and is_text(media_type):
        return declared | {"data": data.decode()}
    return declared | {"data_base64": b64encode(data).decode()}


def _data_in(topic: str, members: Mapping[str, Any], inner: Serde | None) -> Any:
    """Return the data of an event's JSON."""
    media_type = members.get("datacontenttype")
    if (encoded := members.get("data_base64")) is not None:
        try:
            data = b64decode(encoded, validate=True)
        except (ValueError, TypeError) as error:
            raise SerializationError(f"Cannot read data_base64 of a CloudEvent from {topic!r}: {error}.") from error
        return _value_of(topic, data, media_type, inner)
    value = members.get("data")
    if value is None or inner is None:
        return value
    data = _JSON.serialize(topic, value) if is_json(media_type) else str(value).encode()
    return inner.deserialize(topic, data)


def _event(topic: str, members: Mapping[str, Any], data: Any) -> CloudEvent[Any]:
    missing = [name for name in ("specversion", "type", "source", "id") if members.get(name) is None]
    if missing:
        raise SerializationError(
            f"Cannot read a CloudEvent from {topic!r}: the record has no {_PREFIX}{missing[0]} and no content-type "
            f"{_STRUCTURED}+json. Read records that are no events with another serde."
        )
    known = {name: members[name] for name in (*_TEXTS, "datacontenttype") if members.get(name) is not None}
    extensions = {name: value for name, value in members.items() if name not in _MEMBERS and value is not None}
    try:
        return CloudEvent(**known, data=data, time=_time(members.get("time")), extensions=extensions)
    except (ValueError, TypeError) as error:
        raise SerializationError(f"Cannot read a CloudEvent from {topic!r}: {error}") from error


def _time(text: Any) -> datetime | None:
    """Return the time of RFC 3339; raises ValueError for any other text."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError(f"time is a text, not {text!r}.")
    return datetime.fromisoformat(text)
