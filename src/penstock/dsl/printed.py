"""Printed: options for the output of `KStream.print`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.errors import TopologyError
from penstock.plan.names import check_name


@dataclass(frozen=True, kw_only=True)
class Printed:
    """Destination and format of printed records (Kafka class: Printed); created by `to_sys_out` or `to_file`.

    Args:
        path: the file that receives the lines; None for standard output.
        label: shown before each record; None for the name of its node.
        mapper: returns the text of a record; None for its key and value.
        name: of the printing node.
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
        """Return options to append to the file `path`, as seen by the printing task.

        Raises TopologyError for a blank path.
        """
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
        """Return a copy with the printing node's name; raises TopologyError if it is invalid."""
        return replace(self, name=name)
