"""Consumer and Fetcher over confluent-kafka, which return records as batches of bytes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Generator, Iterator, Mapping
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import KafkaError as Code
from confluent_kafka import TopicPartition as Position

from penstock.background import in_background
from penstock.client.confluent.connection import UNKNOWN_TOPIC, ClientConnection, is_no_login, passing
from penstock.client.confluent.stalls import Stalls, check_stalled
from penstock.client.failures import Right
from penstock.client.kept_clients import KeptClients
from penstock.client.settings import CONSUMER, client_settings
from penstock.config import StreamsConfig
from penstock.errors import BrokerNotFoundError, KafkaError, OffsetOutOfRangeError
from penstock.record import Headers, RecordBatch, TopicPartition

_FETCH_RECORDS = 10_000
"""Maximum number of records in one call of librdkafka, and in one batch."""

_ASSUMED_BYTES = 10_000
"""Assumed size (bytes) of a record before the first one."""

_FIRST_TRY = 0.25
"""Fraction of the timeout without records after which another consumer continues."""

_LONGEST_MS = 86_400_000
"""The maximum of max.poll.interval.ms.

No consumer here is in a group, but librdkafka requires a longer interval than that of the session.
"""

_LOOK_SECONDS = 0.5
"""Interval (s) at which a wait for records checks whether records can still arrive."""


class ConfluentConsumer:
    """Consumer over confluent-kafka; it connects in the background.

    Args:
        config: the configuration of the application.
        read_committed: skip records of aborted and open transactions.
        timeout_ms: the timeout (ms) of one call.
        role: CONSUMER or RESTORE_CONSUMER; selects the configuration keys.
        defaults: default settings of this client, which override those of its role.
    """

    def __init__(
        self,
        config: StreamsConfig,
        read_committed: bool = True,
        timeout_ms: int = 10_000,
        role: str = CONSUMER,
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        self._config, self._read_committed = config, read_committed
        settings = client_settings(config, role, _settings(read_committed), defaults)
        self._connection = ClientConnection(settings, timeout_ms)
        self._client: Consumer | None = self._connection.make(Consumer)
        self._stalls = Stalls(config, read_committed)
        self._looked_up: set[str] = set()
        self._reached: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._pending: deque[Message] = deque()
        """An error to be raised after earlier records, and the messages after it. They are less than one poll."""
        self._record_bytes = _ASSUMED_BYTES
        """Average size (bytes) of a record in the last poll."""

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Read these partitions from these offsets, replacing the previous assignment."""
        targets = [Position(*partition, offset) for partition, offset in positions.items()]
        client = self._open()
        self._end_pauses(self._paused)
        self._pending.clear()
        self._look_up(client, positions)
        self._connection.call("assigning partitions", lambda: client.assign(targets))
        self._stalls = Stalls(self._config, self._read_committed)
        self._stalls.begin(positions)

    def incremental_assign(self, positions: Mapping[TopicPartition, int]) -> None:
        """Add these partitions, from these offsets; the others keep their positions."""
        targets = [Position(*partition, offset) for partition, offset in positions.items()]
        client = self._open()
        self._look_up(client, positions)
        self._connection.call("assigning partitions", lambda: client.incremental_assign(targets))
        self._stalls.begin(positions)

    def incremental_unassign(self, partitions: Collection[TopicPartition]) -> None:
        """Stop reading these partitions; their records are no longer returned."""
        targets = _positions_of(partitions)
        client = self._open()
        self._end_pauses(self._paused.intersection(partitions))
        self._connection.call("giving up partitions", lambda: client.incremental_unassign(targets))
        self._pending = deque(each for each in self._pending if _partition_of(each) not in partitions)
        self._stalls.end(partitions)
        for partition in partitions:
            self._reached.pop(partition, None)  # it may be read again from an earlier position
            self._epochs.pop(partition, None)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Stop fetching these partitions until `resume`; records that have already arrived are still returned."""
        targets = _positions_of(partitions)
        client = self._open()
        self._connection.call("pausing partitions", lambda: client.pause(targets))
        self._paused.update(partitions)
        self._stalls.pause(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Return records of these partitions again."""
        targets = _positions_of(partitions)
        client = self._open()
        self._connection.call("resuming partitions", lambda: client.resume(targets))
        self._paused.difference_update(partitions)
        self._stalls.resume(partitions)

    def _end_pauses(self, partitions: Collection[TopicPartition]) -> None:
        """Resume partitions before they are unassigned: librdkafka would pause them again in the next assignment."""
        if partitions:
            self.resume(list(partitions))

    def known_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the readable end of each partition from the last fetch, without a request."""
        client = self._open()
        found = {each: client.get_watermark_offsets(Position(*each), cached=True) for each in partitions}
        return {each: high for each, (_, high) in found.items() if high >= 0}

    def reached_ends(self) -> dict[TopicPartition, int]:
        """Return the end offsets of partitions read to their end; see `client.api`."""
        reached, self._reached = self._reached, {}
        return reached

    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        """Return the leader epoch of the last record received from each partition."""
        return self._epochs

    def poll(
        self, timeout_ms: int, max_records: int, max_bytes: int | None = None
    ) -> list[tuple[TopicPartition, RecordBatch]]:
        """Return up to `max_records` records, about `max_bytes`, waiting up to `timeout_ms` for the first.

        An error amid records is raised by the next call; the call after that returns the records that follow it.
        """
        self._stalls.look(self.known_ends)
        arrived = self._poll(timeout_ms, max_records, max_bytes)
        for partition, batch in arrived:
            self._stalls.moved(partition, int(batch.offsets[-1]) + 1)
        return arrived

    def _poll(
        self, timeout_ms: int, max_records: int, max_bytes: int | None
    ) -> list[tuple[TopicPartition, RecordBatch]]:
        client = self._open()
        pending = self._pending
        if not pending:
            pending.extend(self._some(client, max_records, max_bytes, timeout_ms / 1000))
        records = [message for message in pending if message.error() is None]
        events = [message for message in pending if message.error() is not None] if len(records) < len(pending) else []
        if all(_is_end(event) for event in events):
            pending.clear()
            for event in events:
                self._reaches_end(event)
            together = [(TopicPartition(*place), list(run)) for place, run in groupby(records, _place_of)]
            return self._batches(together)
        runs: list[tuple[TopicPartition, list[Message]]] = []
        while pending:
            message = pending[0]
            error, partition = message.error(), _partition_of(message)
            if error is not None and _fails(error):
                if runs:
                    break
                pending.popleft()
                doing = f"reading {partition} at offset {message.offset()}"
                try:
                    self._connection.fail(error, doing, _right(partition))
                except OffsetOutOfRangeError as raised:
                    raised.partition = partition
                    raise
            pending.popleft()
            if error is not None:
                if _is_end(message):
                    self._reaches_end(message)
                continue
            if not runs or runs[-1][0] != partition:
                runs.append((partition, []))
            runs[-1][1].append(message)
        return self._batches(runs)

    def _batches(self, runs: list[tuple[TopicPartition, list[Message]]]) -> list[tuple[TopicPartition, RecordBatch]]:
        for partition, run in runs:
            epoch = run[-1].leader_epoch()
            if epoch is not None and epoch >= 0:
                self._epochs[partition] = epoch
        return [(partition, _batch(run)) for partition, run in runs]

    def _some(self, client: Consumer, most: int, most_bytes: int | None, timeout: float) -> list[Message]:
        """Return messages as `_arrived` does, exceeding `most_bytes` by a few at most.

        Sizes are known only after messages arrive, so they are requested in parts; the average size of the previous
        records determines the length of each part.
        """
        if most_bytes is None:
            return _arrived(client, most, timeout)
        messages: list[Message] = []
        size = 0
        while (left := min(most - len(messages), (most_bytes - size) // self._record_bytes)) > 0 or not messages:
            wanted = max(left, 1)
            part = client.consume(wanted, 0) if messages else _arrived(client, wanted, timeout)
            messages += part
            size += sum(map(len, part))
            if messages:
                self._record_bytes = max(1, size // len(messages))
            if len(part) < wanted:
                break
        return messages

    def _reaches_end(self, event: Message) -> None:
        partition, offset = _partition_of(event), _offset(event)
        self._reached[partition] = offset
        self._stalls.moved(partition, offset)

    def close(self) -> None:
        """Release connections and threads; idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _look_up(self, client: Consumer, partitions: Collection[TopicPartition]) -> None:
        """Make the client look up the leaders of new topics, as far as brokers answer.

        librdkafka itself looks for new topics only once a second.
        """
        for topic in sorted({partition.topic for partition in partitions} - self._looked_up):
            try:
                client.list_topics(topic, _LOOK_SECONDS)
            except KafkaException:
                return
            self._looked_up.add(topic)

    def _open(self) -> Consumer:
        if self._client is None:
            raise KafkaError("The consumer is closed.")
        return self._client


class ConfluentFetcher:
    """Fetcher over confluent-kafka, with one consumer for each isolation level in use.

    The first fetch connects, and the first one after a long pause connects again.

    Args:
        config: the configuration of the application.
        timeout_ms: longest wait (ms) for the next records of a range.
        role: CONSUMER or RESTORE_CONSUMER; selects the configuration keys.
    """

    def __init__(self, config: StreamsConfig, timeout_ms: int = 60_000, role: str = CONSUMER) -> None:
        self._config = config
        self._clients = KeptClients(partial(_opened, config, role, timeout_ms), most=2)
        self._reading: dict[bool, object] = {}
        """The current range of each consumer. The ranges alternate if a caller interleaves the batches of several."""

    def fetch(
        self, partition: TopicPartition, start_offset: int, end_offset: int, read_committed: bool
    ) -> Generator[RecordBatch, None, None]:
        """Yield the records of `partition` from `start_offset` until before `end_offset`; see `client.api`."""
        doing = f"reading {partition} from offset {start_offset} to {end_offset}"
        reached, is_first, range_read = start_offset, True, object()
        while reached < end_offset:
            client = connection, consumer, looked_up = self._clients(read_committed)
            seconds = connection.timeout * (_FIRST_TRY if is_first else 1 - _FIRST_TRY)
            if partition.topic not in looked_up:  # librdkafka itself looks for new topics only once a second
                _ask_for_leader(consumer, partition.topic)
                looked_up.add(partition.topic)
            connection.call(doing, partial(consumer.assign, [Position(*partition, reached)]))
            self._reading[read_committed] = range_read
            try:
                for batch in self._range(connection, consumer, end_offset, doing, seconds, _right(partition)):
                    yield batch
                    reached, is_first = int(batch.offsets[-1]) + 1, True
                    if self._reading.get(read_committed) is not range_read:
                        break
                else:
                    return
            except BrokerNotFoundError:
                # librdkafka may keep asking a broker that is unavailable; a new consumer finds another one
                self._drop(read_committed)
                check_stalled(self._config, partition, reached, read_committed)
                if not is_first:
                    raise
                is_first = False
            finally:
                if self._clients.keeps(client) and self._reading.get(read_committed) is range_read:
                    del self._reading[read_committed]
                    consumer.unassign()

    def _range(
        self,
        connection: ClientConnection,
        consumer: Consumer,
        end_offset: int,
        doing: str,
        seconds: float,
        needs: Right,
    ) -> Iterator[RecordBatch]:
        """Yield the consumer's records until one, or the end of the partition, reaches `end_offset`."""
        while True:
            arrived = _sorted_out(self._next(connection, consumer, doing, seconds, needs), end_offset)
            if arrived.records:
                yield _batch(arrived.records)
            if arrived.is_end:
                return
            if arrived.failure is not None:
                connection.fail(arrived.failure, f"{doing}, at offset {arrived.failed_at}", needs)

    @staticmethod
    def _next(
        connection: ClientConnection, consumer: Consumer, doing: str, seconds: float, needs: Right
    ) -> list[Message]:
        """Return the next messages and events.

        Raises KafkaError if they do not arrive within `seconds`, or cannot arrive. Time during which brokers throttle
        this client for its quota does not count.
        """
        connection.asks()
        deadline = time.monotonic() + seconds
        while True:
            messages = _arrived(consumer, _FETCH_RECORDS, min(seconds, _LOOK_SECONDS))
            if messages:
                connection.answered()
                return messages
            leader_error = _ask_for_leader(consumer, needs.name)
            missing = connection.noticed
            if missing is not None and missing.code() in UNKNOWN_TOPIC and _is_about(missing, needs.name):
                connection.fail(missing, doing)
            if connection.is_refused():
                connection.fail(Code(Code._TIMED_OUT, "no records arrived"), doing, needs)
            if time.monotonic() >= max(deadline, connection.throttled_until + seconds):
                silence = Code(Code._TIMED_OUT, "no records arrived")
                connection.fail(silence if leader_error is None else leader_error, doing, needs)

    def close(self) -> None:
        """Release connections and threads; idempotent."""
        for client in self._clients.release_all():
            client.consumer.close()

    def _drop(self, read_committed: bool) -> None:
        """Discard a consumer; it ends in the background, which may take long."""
        client = self._clients.drop(read_committed)
        if client is not None:
            in_background("penstock-consumer-end", client.consumer.close)


class _Reader(NamedTuple):
    """A consumer of a fetcher. looked_up: the topics whose leaders it has looked up."""

    connection: ClientConnection
    consumer: Consumer
    looked_up: set[str]


def _opened(config: StreamsConfig, role: str, timeout_ms: int, read_committed: bool) -> _Reader:
    # The end of a partition is an event, because control records may follow the last record. All requested records have
    # arrived: waiting for more would delay the next range.
    forced = {**_settings(read_committed), "fetch.wait.max.ms": 5}
    connection = ClientConnection(client_settings(config, role, forced), timeout_ms)
    return _Reader(connection, connection.make(Consumer), set())


def _settings(read_committed: bool) -> dict[str, Any]:
    return {
        "isolation.level": "read_committed" if read_committed else "read_uncommitted",
        "enable.partition.eof": True,
        "max.poll.interval.ms": _LONGEST_MS,
    }


def _arrived(consumer: Consumer, most: int, timeout: float) -> list[Message]:
    """Return up to `most` messages and events, waiting up to `timeout` (s) for the first."""
    messages = consumer.consume(most, 0)  # with a timeout it would wait for all `most`
    if not messages:
        first = consumer.poll(timeout)
        messages = [] if first is None else [first, *consumer.consume(most - 1, 0)]
    return messages


class _Arrived(NamedTuple):
    """The sorted messages of one call of a consumer.

    records: those of the range. is_end: whether the range is complete. failure, failed_at: an error that prevents
    further records, and its offset.
    """

    records: list[Message]
    is_end: bool
    failure: Code | None = None
    failed_at: int | None = None


def _sorted_out(messages: list[Message], end_offset: int) -> _Arrived:
    """Separate records before `end_offset` from events, which may be anywhere among them."""
    if not any(map(Message.error, messages)):
        is_end = _offset(messages[-1]) >= end_offset - 1
        records = [each for each in messages if _offset(each) < end_offset] if is_end else messages
        return _Arrived(records, is_end)
    records, is_end = [], False
    for message in messages:
        error, offset = message.error(), _offset(message)
        if error is None:
            is_end = is_end or offset >= end_offset - 1
            if offset < end_offset:
                records.append(message)
        elif error.code() == Code._PARTITION_EOF:
            is_end = is_end or offset >= end_offset
        elif _fails(error):
            return _Arrived(records, is_end, error, message.offset())
    return _Arrived(records, is_end)


def _is_end(event: Message) -> bool:
    """Return whether an event means that the consumer has reached the end of a partition."""
    error = event.error()
    return error is not None and error.code() == Code._PARTITION_EOF


def _fails(error: Code) -> bool:
    """Return whether an event makes a partition unreadable; other events do not end a read."""
    if error.code() in (Code._PARTITION_EOF, Code.GROUP_AUTHORIZATION_FAILED):
        return False  # librdkafka looks up the group's coordinator, which assigned partitions do not need
    if is_no_login(error):
        return False  # a token may have expired, and the next one may follow
    return bool(error.fatal()) or not passing(error) or error.code() in UNKNOWN_TOPIC


def _ask_for_leader(consumer: Consumer, topic: str) -> Code | None:
    """Make `consumer` look up the current leaders of `topic`; return the error if it cannot.

    librdkafka looks once when a connection is lost, and usually finds the old leader; then it asks that one for
    minutes. It reports no error for a topic that this user may not describe.
    """
    try:
        error: Code | None = consumer.list_topics(topic, _LOOK_SECONDS).topics[topic].error
    except KafkaException:
        return None
    return error


def _is_about(error: Code, topic: str) -> bool:
    """Return whether a background error of librdkafka concerns a partition of `topic`.

    A consumer keeps requesting metadata of topics that it read before. The text of the error begins with the name of
    the topic and the number of the partition.
    """
    return error.str().startswith(f"{topic} [")


def _right(partition: TopicPartition) -> Right:
    return Right("READ", "topic", partition.topic)


def _positions_of(partitions: Collection[TopicPartition]) -> list[Position]:
    return [Position(*each) for each in partitions]


def _place_of(message: Message) -> tuple[str, int]:
    return message.topic() or "", message.partition() or 0


def _partition_of(message: Message) -> TopicPartition:
    return TopicPartition(*_place_of(message))


def _offset(message: Message) -> int:
    offset = message.offset()
    return -1 if offset is None else offset


def _batch(messages: list[Message]) -> RecordBatch:
    count = len(messages)
    headers = [message.headers() for message in messages]
    return RecordBatch(
        keys=[message.key() for message in messages],
        values=[message.value() for message in messages],
        timestamps=np.fromiter([message.timestamp()[1] for message in messages], np.int64, count),
        offsets=np.fromiter([message.offset() for message in messages], np.int64, count),
        headers=[_headers(each) for each in headers] if any(headers) else None,
    )


def _headers(received: Any) -> Headers:
    return tuple(received) if received else ()
