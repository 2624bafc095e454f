"""The program that a switch has replaced, as the metadata of a checkpoint record it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class ReplacedProgram:
    """A program that must not continue the checkpoint any more.

    Args:
        plan: the digest of its application description.
        partitions, sink_partitions: of its last topology version; the digest depends on them.
        successor: the digest of the program that has replaced it (`digest_of_program`).
    """

    plan: str
    partitions: tuple[int, ...]
    sink_partitions: int
    successor: str

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any] | None) -> Self | None:
        """Return the program with the fields of the metadata, None without one."""
        return None if fields is None else cls(**{**fields, "partitions": tuple(fields["partitions"])})
