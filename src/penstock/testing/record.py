"""TestRecord: a record for input and output of tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from penstock.record import Headers
from penstock_broker.common.durations import timestamp_ms

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TestRecord(Generic[K, V]):
    """A record to pipe in, or a record of output (Kafka class: TestRecord).

    Args:
        key: any object.
        value: any object.
        timestamp: ms since the epoch; None in input for the time of the input topic. Raises ValueError if negative,
            TypeError unless a whole number.
        headers: pairs of name and bytes.
    """

    __test__: ClassVar[bool] = False  # pytest collects classes named Test...

    key: K
    value: V
    timestamp: int | None = None
    headers: Headers = ()

    def __post_init__(self) -> None:
        if self.timestamp is None:
            return
        object.__setattr__(self, "timestamp", timestamp_ms(self.timestamp, "timestamp"))
        if self.timestamp < 0:
            raise ValueError(f"Invalid timestamp: {self.timestamp}. Timestamp should always be non-negative or None.")
