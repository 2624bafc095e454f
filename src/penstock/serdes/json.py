"""The serde of JSON values, by orjson."""

from __future__ import annotations

from typing import Any

import orjson

from penstock.errors import SerializationError
from penstock.record import Headers
from penstock.serdes.api import Serde


class JsonSerde(Serde):
    """Dicts, lists, texts, numbers, booleans (also dataclasses and datetimes, written only) as JSON in UTF-8; keys of a
    dict are sorted."""

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes:
        """Return `value` as JSON; raises SerializationError for what JSON cannot hold."""
        try:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
        except orjson.JSONEncodeError as error:
            raise SerializationError(f"Cannot write to {topic!r} as JSON: {error}.") from error

    def deserialize(self, topic: str, data: bytes, headers: Headers = ()) -> Any:
        """Return the JSON value; raises SerializationError when `data` is not JSON."""
        try:
            return orjson.loads(data)
        except orjson.JSONDecodeError as error:
            raise SerializationError(f"Cannot read {data[:100]!r} from {topic!r} as JSON: {error}.") from error
