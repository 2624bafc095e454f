"""What a row of the tables of operations says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.oracle.interpreter.options import MATERIALIZED
from tests.oracle.interpreter.vocabulary import PLAIN, Reader


@dataclass(frozen=True)
class Operation:
    """One operation: readers of its fields, what it calls with (receiver, **fields), the kind of its result.

    receiver: the field that names what it is called on; operands: further fields that name results of other operations.
    """

    apply: Callable[..., Any]
    readers: Mapping[str, Reader] = field(default_factory=dict)
    result: str | None = None
    receiver: str = "from"
    operands: tuple[str, ...] = ()


NAMED: Mapping[str, Reader] = {"named": PLAIN}
AGGREGATION: Mapping[str, Reader] = {"named": PLAIN, "materialized": MATERIALIZED}
