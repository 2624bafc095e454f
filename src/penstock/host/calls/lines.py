"""The lines of one operator's calls: which may be made next, and which answers may be written.

Part of the core of calls: no loop, no clock, no thread.

- KEY: the calls of a key in a partition form a line, and only its first may be made. A null key equals no other.
- PARTITION: all calls may be made, and answers leave in the order of the sequence numbers.
- UNORDERED: all calls may be made, and answers leave as they come.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from heapq import heappop, heappush

from penstock.processor.calls import Answer, CallOrder
from penstock.processor.waiting_records import WaitingRecord


@dataclass(eq=False, slots=True)
class Call:
    """A record that waits for its answer.

    Args:
        partition: the number of the task's partition.
        sequence: the number of the waiting record.
        record: the waiting record.
        turn: the place among all calls of the operator.
        attempts: the number of attempts made.
        answer: None until it is known.
        is_dropped: whether its answer is no longer wanted.
    """

    partition: int
    sequence: int
    record: WaitingRecord
    turn: int
    attempts: int = 0
    answer: Answer | None = None
    is_dropped: bool = False


class CallLines:
    """The calls of one operator that have no answer yet.

    Args:
        order: of the calls and answers of a partition.
    """

    def __init__(self, order: CallOrder) -> None:
        self._order = order
        self._calls: defaultdict[int, dict[int, Call]] = defaultdict(dict)
        self._keys: defaultdict[int, dict[bytes, deque[Call]]] = defaultdict(dict)
        self._ready: list[tuple[int, Call]] = []  # a heap by turn; some of its calls are dropped
        self._turn = 0
        self.held = 0
        """The number of answered calls that may not leave yet."""

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))

    def add(self, partition: int, sequence: int, record: WaitingRecord) -> None:
        """Add a call as the last one of its line; one that is known already is ignored."""
        if sequence in self._calls[partition]:
            return
        self._turn += 1
        call = Call(partition, sequence, record, self._turn)
        self._calls[partition][sequence] = call
        if self._order is CallOrder.KEY and record.key is not None:
            line = self._keys[partition].setdefault(record.key, deque())
            line.append(call)
            if len(line) > 1:
                return
        self.again(call)

    def again(self, call: Call) -> None:
        """Allow another attempt of a call."""
        heappush(self._ready, (call.turn, call))

    def has_next(self) -> bool:
        """Return whether a call may be made."""
        while self._ready and self._ready[0][1].is_dropped:
            heappop(self._ready)
        return bool(self._ready)

    def has_begun_next(self) -> bool:
        """Return whether the first call that may be made has had an attempt before."""
        return self.has_next() and self._ready[0][1].attempts > 0

    def next(self) -> Call:
        """Remove and return the first call that may be made; raises IndexError if there is no such call."""
        self.has_next()
        return heappop(self._ready)[1]

    def answered(self, call: Call) -> list[Call]:
        """Note the answer of a call; return the calls, in order, that are answered and leave now."""
        calls = self._calls[call.partition]
        if self._order is CallOrder.PARTITION:
            leaving = []
            for each in calls.values():
                if each.answer is None:
                    break
                leaving.append(each)
        else:
            leaving = [call]
        self.held += 1 - len(leaving)
        for each in leaving:
            del calls[each.sequence]
        if self._order is CallOrder.KEY and call.record.key is not None:
            self._advance(self._keys[call.partition], call.record.key)
        return leaving

    def _advance(self, lines: dict[bytes, deque[Call]], key: bytes) -> None:
        """Allow the second call of a line, and remove the first."""
        line = lines[key]
        line.popleft()
        if line:
            self.again(line[0])
        else:
            del lines[key]

    def drop(self, partition: int) -> list[Call]:
        """Remove and return the calls of a partition."""
        self._keys.pop(partition, None)
        dropped = [*self._calls.pop(partition, {}).values()]
        for call in dropped:
            call.is_dropped = True
            self.held -= call.answer is not None
        return dropped
