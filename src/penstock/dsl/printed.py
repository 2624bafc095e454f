"""Printed: where and how `KStream.print` shows records."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import TopologyError
from penstock.plan.names import check_name


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Where records are shown, and how (Kafka class: Printed); made by `to_sys_out` or `to_file`.

    path: the file that lines are appended to; None for standard output. label: shown before each record, None for the
    name of the node that it comes from. mapper: makes the text of a record, None for its key and value. name: of the
    printing node.
    """

    path: str | None = None
    label: str | None = None
    mapper: Callable[[Any, Any], str] | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)

    @staticmethod
    def to_sys_out() -> Printed:
        """Return options to print on standard output."""
        return Printed()

    @staticmethod
    def to_file(path: str) -> Printed:
        """Return options to append to the file `path`, as the task that prints sees it; raises TopologyError for a
        blank path."""
        if path is None:
            raise TypeError("filePath can't be null")
        if not path.strip():
            raise TopologyError("filePath can't be an empty string")
        return Printed(path=path)

    def with_label(self, label: str) -> Printed:
        """Return a copy that shows `label` before each record."""
        if label is None:
            raise TypeError("label can't be null")
        return replace(self, label=label)

    def with_key_value_mapper(self, mapper: Callable[[Any, Any], str]) -> Printed:
        """Return a copy that shows `mapper(key, value)` for each record."""
        if mapper is None:
            raise TypeError("mapper can't be null")
        return replace(self, mapper=mapper)

    def with_name(self, name: str) -> Printed:
        """Return a copy with the name of the printing node; raises TopologyError if it is not legal."""
        return replace(self, name=name)
