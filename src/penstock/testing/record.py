"""TestRecord: a record as tests pipe it in and read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from penstock.record import Headers
from penstock_broker.common.durations import timestamp_ms

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class TestRecord(Generic[K, V]):
    """A record to pipe in, or one that was read (Kafka class: TestRecord).

    timestamp: ms since the epoch; None in a record to pipe in: the time of the input topic. Raises ValueError when it
    is negative, TypeError when it is not a whole number.
    """

    __test__: ClassVar[bool] = False  # pytest takes classes named Test... for tests

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
