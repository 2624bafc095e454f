"""`CloudEvent`, the value of CloudEvents 1.0, and the rules for its data.

The serdes are in serdes/cloud_events.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Generic

from typing_extensions import TypeVar

D = TypeVar("D", default=Any)

JSON_TYPE: Final = "application/json"

_NAME = re.compile(r"[a-z0-9]+\Z")
_TEXTS: Final = ("specversion", "type", "source", "id")
_OPTIONAL_TEXTS: Final = ("subject", "datacontenttype", "dataschema")


@dataclass(frozen=True, slots=True)
class CloudEvent(Generic[D]):
    """An event of CloudEvents 1.0: attributes and data.

    Args:
        type: the kind of event, such as `com.example.order.created`.
        source: the context of the event, as a URI reference; with `id` it identifies the event.
        id: identifies the event within its source.
        data: the payload; None for an event without data.
        subject: what the event is about within its source.
        time: when the event happened, with a time zone; precise to the microsecond.
        datacontenttype: the media type of `data`; None for JSON.
        dataschema: the URI of the schema of `data`.
        extensions: further attributes by name; values are texts, whole numbers of 32 bits, booleans and bytes.
        specversion: the version of the specification.

    Raises:
        TypeError: an attribute has another type.
        ValueError: an attribute is empty, the time has no time zone, a number has more than 32 bits, or a name has
            other characters than lower-case letters and digits.
    """

    type: str
    source: str
    id: str
    data: D | None = None
    subject: str | None = None
    time: datetime | None = None
    datacontenttype: str | None = None
    dataschema: str | None = None
    extensions: Mapping[str, str | int | bool | bytes] = field(default_factory=dict)
    specversion: str = "1.0"

    def __post_init__(self) -> None:
        for name in _TEXTS:
            self._check_text(name, getattr(self, name))
        for name in _OPTIONAL_TEXTS:
            if getattr(self, name) is not None:
                self._check_text(name, getattr(self, name))
        if self.time is not None:
            self._check_time(self.time)
        for name, value in self.extensions.items():
            self._check_extension(name, value)
        object.__setattr__(self, "extensions", MappingProxyType(dict(self.extensions)))

    def __hash__(self) -> int:
        return hash((self.source, self.id))

    def __reduce__(self) -> tuple[Any, ...]:
        values = [getattr(self, each.name) for each in fields(self)]
        values[_EXTENSIONS] = dict(self.extensions)  # a view of a dict is not picklable
        return CloudEvent, tuple(values)

    @staticmethod
    def _check_text(name: str, value: Any) -> None:
        if not isinstance(value, str):
            raise TypeError(f"The attribute {name} of a CloudEvent is a text, not {value!r}.")
        if not value:
            raise ValueError(f"The attribute {name} of a CloudEvent is empty: set it, or leave out an optional one.")

    @staticmethod
    def _check_time(value: Any) -> None:
        if not isinstance(value, datetime):
            raise TypeError(f"The attribute time of a CloudEvent is a datetime, not {value!r}.")
        if value.tzinfo is None:
            raise ValueError(f"The attribute time of a CloudEvent has a time zone, and {value!r} has none.")

    @staticmethod
    def _check_extension(name: str, value: Any) -> None:
        if not _NAME.match(name) or name in _ATTRIBUTES:
            raise ValueError(
                f"{name!r} cannot be an extension of a CloudEvent: a name has lower-case letters and digits only, "
                f"and is none of {', '.join(_ATTRIBUTES)}."
            )
        if not isinstance(value, str | int | bytes):
            raise TypeError(
                f"The extension {name} of a CloudEvent is a text, whole number, boolean or bytes, not {value!r}."
            )
        if isinstance(value, int) and not -(2**31) <= value < 2**31:
            raise ValueError(f"The extension {name} of a CloudEvent has 32 bits, and {value} has more: write a text.")


_ATTRIBUTES: Final = tuple(each.name for each in fields(CloudEvent) if each.name != "extensions")
_EXTENSIONS: Final = [each.name for each in fields(CloudEvent)].index("extensions")


def is_json(media_type: str | None) -> bool:
    """Return whether `media_type` declares JSON: it ends with `/json` or `+json`, or is missing."""
    if media_type is None:
        return True
    return _essence(media_type).endswith(("/json", "+json"))


def is_text(media_type: str) -> bool:
    """Return whether `media_type` declares text in UTF-8."""
    essence, _, parameters = media_type.lower().partition(";")
    charset = re.search(r'charset="?([^;"\s]+)', parameters)
    is_utf8 = charset is None or charset.group(1) in ("utf-8", "utf8", "us-ascii")
    return is_utf8 and (essence.strip().startswith("text/") or essence.strip().endswith(("/xml", "+xml")))


def _essence(media_type: str) -> str:
    return media_type.partition(";")[0].strip().lower()
