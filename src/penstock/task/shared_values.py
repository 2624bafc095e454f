"""The check of `penstock.check.shared.values`: no node changes a value shared with another branch.

Nodes pass values on, not copies, as in Kafka Streams. A digest of each value is taken before and after each node. A
node may change a value if only nodes below it receive the value later.
"""

from __future__ import annotations

import pickle
from hashlib import blake2b
from typing import Any, Final, Protocol

from penstock.errors import StreamsError
from penstock.record import NO_METADATA, Change, Record, RecordMetadata
from penstock.task.context import TaskContext
from penstock.task.error_handling import ProcessingError

_UNCHANGING: Final = frozenset({str, bytes, int, float, bool, type(None)})
_VALUES: Final = 10_000
"""Maximum number of remembered values of one input record."""


class _Node(Protocol):
    name: str

    def process(self, record: Record[Any, Any]) -> None: ...


class _Seen:
    """A received value, its digest, and the node that changed it last."""

    def __init__(self, value: Any, digest: bytes) -> None:
        self.value = value  # kept, so that no other object gets its id
        self.digest = digest
        self.changed_by: str | None = None


class SharedValues:
    """The nodes' changes to the values of one input record; no node is watched initially.

    Args:
        task: the context of the task.
    """

    def __init__(self, task: TaskContext) -> None:
        self._task = task
        self._metadata: RecordMetadata | None = None
        self._seen: dict[int, _Seen] = {}
        self._running: list[str] = []

    def watch(self, node: _Node) -> None:
        """Check each record that `node` processes alone.

        The node raises ProcessingError for a value that a node of another branch has changed.
        """
        name, process = node.name, node.process

        def check_and_process(record: Record[Any, Any]) -> None:
            value = record.value.new_value if isinstance(record.value, Change) else record.value
            if type(value) in _UNCHANGING:
                process(record)
                return
            seen = self._received(name, value, record)
            self._running.append(name)
            try:
                process(record)
            finally:
                self._running.pop()
                _note_change(seen, name)

        vars(node)["process"] = check_and_process

    def _received(self, name: str, value: Any, record: Record[Any, Any]) -> _Seen:
        metadata = self._task.metadata
        if metadata is not self._metadata or len(self._seen) >= _VALUES:
            self._metadata = metadata
            self._seen.clear()
        seen = self._seen.get(id(value))
        if seen is None:
            seen = self._seen[id(value)] = _Seen(value, _digest(value))
        else:
            _note_change(seen, self._running[-1] if self._running else None)
        if seen.changed_by is not None and seen.changed_by not in self._running:
            raise ProcessingError(name, self._error(seen.changed_by, name), record=record)
        return seen

    def _error(self, changed_by: str, name: str) -> StreamsError:
        topic, partition, offset = (self._task.metadata or NO_METADATA)[:3]
        described = self._task.described
        return StreamsError(
            f"{described(changed_by)} changed the value that {described(name)} receives too, for the input record at "
            f"topic {topic}, partition {partition}, offset {offset}. Return a changed copy instead, such as "
            "{**value, ...} or copy.deepcopy(value)."
        )


def _note_change(seen: _Seen, name: str | None) -> None:
    digest = _digest(seen.value)
    if digest != seen.digest:
        seen.digest, seen.changed_by = digest, name


def _digest(value: Any) -> bytes:
    try:
        data = pickle.dumps(value)
    except Exception:  # any error of a user's class
        data = repr(value).encode(errors="surrogatepass")
    return blake2b(data, digest_size=16).digest()
