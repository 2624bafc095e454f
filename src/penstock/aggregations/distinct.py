"""Approximate numbers of distinct values: HyperLogLog.

Hashes have 64 bits. The first 12 choose one of 4096 registers, and a register has the largest rank of its hashes, the
position of the first 1 in the other bits. The registers do not depend on the order of the values.

Source: Ertl, "New cardinality estimation algorithms for HyperLogLog sketches" (2017), section "improved raw
estimator", which needs no table of corrections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import inf, sqrt
from typing import Any, ClassVar, Final
from uuid import UUID

import numpy as np

from penstock.aggregations.api import Aggregation, V
from penstock.aggregations.state_serde import StateSerde
from penstock.serdes import LongSerde, Serde

_REGISTERS: Final = 4096
_RANK_BITS: Final = 52
_RANK_MASK: Final = (1 << _RANK_BITS) - 1
_BIAS: Final = 0.7213475204444817  # 1 / (2 ln 2)
_EMPTY: Final = bytes(_REGISTERS)

_ALL, _SOME = b"a", b"s"
_ENTRY: Final = np.dtype([("register", ">u2"), ("rank", "u1")])


@dataclass(frozen=True)
class DistinctValues:
    """The state of a number of distinct values.

    Args:
        ranks: one byte per register.
    """

    ranks: bytes

    def estimate(self) -> int:
        """Return the approximate number of values; the standard error is 1.6 %."""
        counts = np.bincount(np.frombuffer(self.ranks, np.uint8), minlength=_RANK_BITS + 2).tolist()
        scaled = _REGISTERS * _tau(1 - counts[_RANK_BITS + 1] / _REGISTERS)
        for rank in range(_RANK_BITS, 0, -1):
            scaled = 0.5 * (scaled + counts[rank])
        scaled += _REGISTERS * _sigma(counts[0] / _REGISTERS)
        return round(_BIAS * _REGISTERS * _REGISTERS / scaled)


@dataclass(frozen=True, kw_only=True)
class ApproxDistinct(Aggregation[V, int]):
    """The approximate number of distinct values; its state is DistinctValues."""

    def result(self, state: DistinctValues | None) -> int | None:
        """Return the approximate number."""
        return None if state is None else state.estimate()

    def state_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of DistinctValues."""
        return DistinctSerde()

    def result_serde(self, part_serde: Serde | None) -> Serde:
        """Return the serde of 8-byte integers."""
        return LongSerde()

    def takes_column(self, parts: Sequence[Any], reads_back: Callable[[type], bool]) -> bool:
        """Return True: columns are faster than single values."""
        return True

    def added_column(self, state: DistinctValues | None, parts: Sequence[Any]) -> DistinctValues:
        """Return the state after `parts`."""
        ranks = bytearray(_EMPTY if state is None else state.ranks)
        for part in parts:
            register, rank = _place(part)
            if rank > ranks[register]:
                ranks[register] = rank
        return DistinctValues(bytes(ranks))

    def added_part(self, state: DistinctValues | None, part: Any) -> DistinctValues:
        """Return the state after `part`."""
        ranks = _EMPTY if state is None else state.ranks
        register, rank = _place(part)
        if state is not None and rank <= ranks[register]:
            return state
        return DistinctValues(ranks[:register] + bytes((rank,)) + ranks[register + 1 :])

    def merged_states(self, one: DistinctValues, other: DistinctValues) -> DistinctValues:
        """Return the state of the values of both states."""
        larger = np.maximum(np.frombuffer(one.ranks, np.uint8), np.frombuffer(other.ranks, np.uint8))
        return DistinctValues(larger.tobytes())

    def __str__(self) -> str:
        return "approx_distinct()"


class DistinctSerde(StateSerde):
    """The serde of DistinctValues: the registers with a rank if they are few, otherwise all ranks."""

    kind: ClassVar[bytes] = b"D"
    aggregation: ClassVar[str] = "approx_distinct"
    unchanging_types = frozenset({DistinctValues})

    def _packed(self, topic: str, state: DistinctValues) -> bytes:
        ranks = np.frombuffer(state.ranks, np.uint8)
        registers = np.flatnonzero(ranks)
        if len(registers) * _ENTRY.itemsize >= _REGISTERS:
            return _ALL + state.ranks
        entries = np.empty(len(registers), _ENTRY)
        entries["register"], entries["rank"] = registers, ranks[registers]
        return _SOME + entries.tobytes()

    def _unpacked(self, topic: str, data: bytes) -> DistinctValues:
        form, rest = data[:1], data[1:]
        if form == _ALL and len(rest) == _REGISTERS:
            return DistinctValues(rest)
        if form != _SOME:
            raise ValueError(f"expected {_REGISTERS} ranks, got {len(rest)} bytes of form {form!r}")
        entries = np.frombuffer(rest, _ENTRY)
        ranks = np.zeros(_REGISTERS, np.uint8)
        ranks[entries["register"]] = entries["rank"]
        return DistinctValues(ranks.tobytes())


def _place(value: Any) -> tuple[int, int]:
    """Return the register of a value, and its rank there."""
    hashed = int.from_bytes(blake2b(_as_bytes(value), digest_size=8).digest(), "big")
    return hashed >> _RANK_BITS, _RANK_BITS + 1 - (hashed & _RANK_MASK).bit_length()


def _as_bytes(value: Any) -> bytes:
    """Return a value as bytes, the same ones for values that are equal in Python."""
    match value:
        case str():
            return b"s" + value.encode("utf-8", "surrogatepass")
        case bytes():
            return b"b" + value
        case int():
            return b"n%d" % value
        case float():
            return b"n%d" % int(value) if value.is_integer() else b"f" + value.hex().encode()
        case UUID():
            return b"u" + value.bytes
        case tuple():
            return b"t" + b"".join(len(part).to_bytes(4, "big") + part for part in map(_as_bytes, value))
        case _:
            raise TypeError(
                "approx_distinct() counts str, bytes, int, float, UUID and tuples of these, not "
                f"{type(value).__name__} {value!r:.100}: return such a value from `of`."
            )


def _sigma(share: float) -> float:
    """Return the correction for registers without a rank, infinite if there are no others."""
    if share == 1:
        return inf
    weight, total, before = 1.0, share, -1.0
    while total != before:
        share *= share
        before = total
        total += share * weight
        weight += weight
    return total


def _tau(share: float) -> float:
    """Return the correction for registers with the largest rank."""
    if share in (0, 1):
        return 0.0
    weight, total, before = 1.0, 1 - share, -1.0
    while total != before:
        share = sqrt(share)
        before = total
        weight *= 0.5
        total -= (1 - share) ** 2 * weight
    return total / 3
