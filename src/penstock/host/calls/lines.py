"""The lines of one operator's calls: which may be made next, and which answers may be written.

Part of the core of calls: no loop, no clock, no thread.

- KEY: the calls of a key in a partition form a line, and only its first may be made. A null key equals no other.
- PARTITION: all calls may be made, and answers leave in the order of the sequence numbers.
- UNORDERED: all calls may be made, and answers leave as they come.
- Calls that may be made share an attempt, in order of arrival. The last attempt of a call that has failed before is
  made for it alone, so that its record does not fail others. So is each attempt before which the service is asked.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

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
        due: the time in seconds from which it waits for no other calls to share its attempt.
        attempts: the number of attempts made.
        answer: None until it is known.
        is_dropped: whether its answer is no longer wanted.
    """

    partition: int
    sequence: int
    record: WaitingRecord
    turn: int
    due: float = 0.0
    attempts: int = 0
    answer: Answer | None = None
    is_dropped: bool = False


class CallLines:
    """The calls of one operator that have no answer yet.

    Args:
        order: of the calls and answers of a partition.
        attempts: maximum number of attempts of a call.
        reconciles: whether the service is asked before an attempt that may repeat a call.
    """

    def __init__(self, order: CallOrder, attempts: int = 1, *, reconciles: bool = False) -> None:
        self._order = order
        self._attempts = attempts
        self._reconciles = reconciles
        self._calls: defaultdict[int, dict[int, Call]] = defaultdict(dict)
        self._keys: defaultdict[int, dict[bytes, deque[Call]]] = defaultdict(dict)
        self._ready: list[tuple[int, Call]] = []  # a heap by turn
        self._alone: list[tuple[int, Call]] = []  # as above, of calls that share no attempt
        self._turn = 0
        self.held = 0
        """The number of answered calls that may not leave yet."""

    def __len__(self) -> int:
        return sum(map(len, self._calls.values()))

    def add(self, partition: int, sequence: int, record: WaitingRecord, due: float = 0.0) -> None:
        """Add a call as the last one of its line; one that is known already is ignored. due: see `Call`."""
        if sequence in self._calls[partition]:
            return
        self._turn += 1
        call = Call(partition, sequence, record, self._turn, due)
        self._calls[partition][sequence] = call
        if self._order is CallOrder.KEY and record.key is not None:
            line = self._keys[partition].setdefault(record.key, deque())
            line.append(call)
            if len(line) > 1:
                return
        self.again(call)

    def again(self, call: Call) -> None:
        """Allow another attempt of a call."""
        is_last = 0 < call.attempts == self._attempts - 1
        is_alone = is_last or (self._reconciles and call.record.may_have_been_called(call.attempts))
        heappush(self._alone if is_alone else self._ready, (call.turn, call))

    def has_next(self) -> bool:
        """Return whether a call may be made."""
        return bool(self._ready or self._alone)

    def has_begun_next(self) -> bool:
        """Return whether the first call that may be made has had an attempt before."""
        return self.has_next() and self._next_heap()[0][1].attempts > 0

    def due(self, size: int) -> float:
        """Return the time in seconds from which the next attempt waits for no other calls.

        It is in the past if the attempt has as many calls as it may have. Raises IndexError if no call may be made.

        Args:
            size: maximum number of calls of an attempt.
        """
        heap = self._next_heap()
        return float("-inf") if heap is self._alone or len(heap) >= size else heap[0][1].due

    def next(self, size: int) -> list[Call]:
        """Remove and return the calls of the next attempt; raises IndexError if no call may be made.

        Args:
            size: maximum number of calls.
        """
        heap = self._next_heap()
        count = 1 if heap is self._alone else min(size, len(heap))
        return [heappop(heap)[1] for _ in range(count)]

    def _next_heap(self) -> list[tuple[int, Call]]:
        """Return the heap with the first call that may be made."""
        if self._alone and self._ready:
            return min(self._alone, self._ready, key=lambda heap: heap[0][0])
        return self._alone or self._ready

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
        for heap in (self._ready, self._alone):
            heap[:] = [each for each in heap if not each[1].is_dropped]
            heapify(heap)
        return dropped
