"""The inbox of an operator with calls: records wait in a store until their answers come.

Rules:
- The inbox keeps each record with the number that its answer names. The number of the next one is kept across commits,
  so a number does not occur again while an answer may still name it.
- A host makes calls only for committed entries: `commit` tells which ones are new.
- The id of a call is kept with its record: it is the same for each attempt, and no other call has it.
- Two nodes of a task use one inbox: the first adds records, and the second removes them.
- Records that the inbox has added are also in memory, as their calls are, so their answers cost no read of the store.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, Protocol, cast

from penstock.processor.api import EngineContext, Processor, ProcessorContext
from penstock.processor.calls import CallOrder, CallSpec
from penstock.processor.waiting_records import SourceBytes, Waiting, WaitingRecord, WaitingRecords
from penstock.processor.waiting_serdes import serdes_of_store
from penstock.record import NO_METADATA, Record, RecordMetadata

_LONGEST_ORIGIN: Final = 500
"""Number of characters from which on an id begins with a digest: a processor may call again for each answer."""

_DIGEST_BYTES: Final = 16


class CallsContext(EngineContext, Protocol):
    """The context of the two nodes of an operator with calls."""

    def call_inbox(self, node: str, make: Callable[[], CallInbox]) -> CallInbox:
        """Return the inbox of the operator `node` in this task, made by `make` at first."""
        ...

    def set_caller(self, caller: Callable[[Callable[..., Any], Record[Any, Any]], None]) -> None:
        """Set the function that keeps the calls of this node.

        It takes a function and the record of its call, whose value is the argument.
        """
        ...

    def process_answered(self, record: Record[Any, Any], waiting: WaitingRecord) -> None:
        """Pass the record of an answer to this node, as when it arrived."""
        ...

    def call_origin(self) -> str | None:
        """Return the beginning of the ids of the calls that follow from what the task processes.

        It is the place of the input record, or the id of the call whose answer is used. None if another record may have
        the same: for records from punctuations, caches, stores and repartition topics.
        """
        ...

    def is_repeated(self, answer: RecordMetadata) -> bool:
        """Return whether the call of the answer at this place is made again if it has failed."""
        ...


class CallInbox:
    """The waiting records of one operator in one task.

    Args:
        context: of a node that is connected to the store.
        spec: the operator.
    """

    def __init__(self, context: EngineContext, spec: CallSpec) -> None:
        store: Any = context.get_state_store(spec.store)
        self.serdes = serdes_of_store("Calls", store, context.application_id)
        self._rules = spec.rules
        self._node = spec.node
        self._task = f"{context.application_id}/{context.task_id}"
        self._metadata = context.processor_metadata()
        self._next_name = f"{spec.store}/next"
        self._records = WaitingRecords(store, self._metadata.get(self._next_name, 1))
        self._kept: dict[int, WaitingRecord] = {}
        self._added: list[Waiting] = []
        self._committed = {sequence: record.that_waited() for sequence, record in self._records.waiting()}
        self._entries = self._bytes = 0
        self._origin: str | None = None
        self._index = 0

    def __len__(self) -> int:
        return len(self._records)

    @property
    def is_full(self) -> bool:
        """Whether the store has reached a limit, so that only answers may be taken."""
        return min(self.room) <= 0

    @property
    def room(self) -> tuple[int, int]:
        """How many records and bytes the store may grow until it is full."""
        rules = self._rules
        return rules.max_records - len(self._records), rules.max_bytes - self._records.size_bytes

    @property
    def added(self) -> tuple[int, int]:
        """The number and the size in bytes of all records that have been added."""
        return self._entries, self._bytes

    @property
    def has_uncommitted(self) -> bool:
        """Whether records were added since the last commit."""
        return bool(self._added)

    def add(
        self, record: Record[Any, Any], place: RecordMetadata, source: SourceBytes | None, origin: str | None
    ) -> None:
        """Add a record.

        Args:
            record: the record.
            place: of its input record.
            source: key and value of its input record, None if unknown.
            origin: the beginning of the id of its call (see `CallsContext.call_origin`).

        Raises:
            StreamsError: a serde cannot write its part.
        """
        key, value, headers = self.serdes.serialized(record)
        call_id = self._call_id(origin)
        added = WaitingRecord(key, value, record.timestamp, headers, *place, source=source, call_id=call_id)
        before = self._records.size_bytes
        sequence = self._records.append(added)
        self._entries += 1
        self._bytes += self._records.size_bytes - before
        self._metadata[self._next_name] = sequence + 1
        self._kept[sequence] = added
        self._added.append((sequence, added))

    def _call_id(self, origin: str | None) -> str:
        """Return the id of the call of the next record."""
        if origin is None:
            return f"{self._task}/{self._node}/{self._records.next_number}"
        self._index = self._index + 1 if origin == self._origin else 0
        self._origin = origin
        if len(origin) > _LONGEST_ORIGIN:
            origin = f"{blake2b(origin.encode(), digest_size=_DIGEST_BYTES).hexdigest()}/"
        return f"{origin}{self._node}:{self._index}" if self._index else f"{origin}{self._node}"

    def get(self, sequence: int) -> WaitingRecord | None:
        """Return the waiting record of a number, or None if absent."""
        return self._kept.get(sequence) or self._records.get(sequence)

    def values(self) -> list[bytes | None]:
        """Return the serialised values of all waiting records."""
        return [record.value for _, record in self._records.waiting()]

    def is_overtaking(self, sequence: int) -> bool:
        """Return whether a record waits whose result must come before that of this number."""
        match self._rules.order:
            case CallOrder.KEY:
                return not self._records.leads(sequence)
            case CallOrder.PARTITION:
                return self._records.earliest() != sequence
            case CallOrder.UNORDERED:
                return False

    def remove(self, sequence: int) -> None:
        """Remove the record of a number; raises KeyError if it does not wait."""
        self._records.remove(sequence)
        self._kept.pop(sequence, None)
        self._committed.pop(sequence, None)  # answered before: an earlier run of the task has made the call

    def commit(self) -> None:
        """Note that the records added so far are committed."""
        self._committed.update(self._added)
        self._added.clear()

    def take_committed(self) -> list[Waiting]:
        """Remove and return the records whose calls may be made, at first all those of the store.

        Those that the store had at first are marked (`WaitingRecord.was_waiting`).
        """
        taken, self._committed = self._committed, {}
        return [*taken.items()]


def is_call_of(node: str, call_id: str) -> bool:
    """Return whether an id of a call, as an inbox makes it, may be that of the operator `node`."""
    before, last = ["", *call_id.split("/")][-2:]
    named = last.partition(":")[0]
    return named == node or named.endswith(f"-{node}") or (before == node and last.isdecimal())


class StreamCallInbox(Processor):
    """Adds each record to the inbox of its operator.

    Args:
        spec: the operator.
    """

    def __init__(self, spec: CallSpec) -> None:
        self._spec = spec

    def init(self, context: ProcessorContext) -> None:
        """Open the inbox; raises ConfigError if a serde is missing."""
        super().init(context)
        self._engine = cast(CallsContext, context)
        self._inbox = opened_inbox(self._engine, self._spec)

    def process(self, record: Record[Any, Any]) -> None:
        """Keep the record until its answer comes; raises StreamsError if a serde cannot write it."""
        keep_record(self._engine, self._inbox, record)


def keep_record(context: CallsContext, inbox: CallInbox, record: Record[Any, Any]) -> None:
    """Keep `record` in `inbox` until its answer comes, with the place of the input record of `context`.

    Raises StreamsError if a serde cannot write it.
    """
    place = context.record_metadata or NO_METADATA
    inbox.add(record, place, context.source_record(), context.call_origin())


def opened_inbox(context: CallsContext, spec: CallSpec) -> CallInbox:
    """Return the inbox of an operator in the task of `context`."""
    return context.call_inbox(spec.node, lambda: CallInbox(context, spec))
