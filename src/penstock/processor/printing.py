"""The operator that shows records on standard output or in a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.processor.api import Processor
from penstock.record import Record


class StreamPrint(Processor):
    """Writes a line for each record, `[label]: text`, and ends there (Kafka class: KStreamPrint).

    A file is opened for each record, so its lines are visible immediately, whichever task wrote them.
    """

    def __init__(self, label: str, mapper: Callable[[Any, Any], str] | None, path: str | None) -> None:
        """Take the label, the function that makes the text (None: key and value), and the file (None: standard
        output)."""
        self._label = label
        self._mapper = mapper or _key_and_value
        self._path = path

    def process(self, record: Record[Any, Any]) -> None:
        """Write the line of the record."""
        line = f"[{self._label}]: {self._mapper(record.key, record.value)}\n"
        if self._path is None:
            sys.stdout.write(line)
            return
        with Path(self._path).open("a", encoding="utf-8") as file:
            file.write(line)


def _key_and_value(key: Any, value: Any) -> str:
    return f"{_text(key)}, {_text(value)}"


def _text(part: Any) -> str:
    return "null" if part is None else str(part)
