"""What an instance of a simulation reaches the broker with: the clients of the host, as far as it uses them. Requests
take time, may fail, and may arrive though who sent them is dead; so may their answers be lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from penstock.client.api import GroupIdentity, OffsetAndMetadata, OnRefused
from penstock.errors import (
    BrokerNotFoundError,
    KafkaError,
    OffsetOutOfRangeError,
    ProducerFencedError,
    StreamsError,
    UnstableOffsetCommitError,
)
from penstock.record import PartitionBatch, RecordBatch, TopicPartition
from tests.host.threads.simulation.broker import Broker, batch_of
from tests.host.threads.simulation.world import World

T = TypeVar("T")

LOT = 7
"""Records of a batch of a fetch."""

_STABLE_MS, _FETCH_MS = 10_000, 60_000
_SLOW, _LOST = 0.05, 0.01


def _pauses(most: int) -> Iterator[int]:
    """Yield pauses (ms) that grow, of `most` ms in all."""
    pause = 20
    while most > 0:
        yield pause
        most -= pause
        pause = min(2 * pause, 1_000)


class Sender(Protocol):
    """The process that sends requests."""

    def wait(self, milliseconds: int) -> None:
        """Let the calling thread wait; raises Killed if the process dies meanwhile."""
        ...

    def step(self) -> None:
        """Let the process be struck here, if it is to be; as `wait`."""
        ...


class Requests:
    """The connection of a process to the broker: each request at once, or slowly, or in vain."""

    def __init__(self, world: World, broker: Broker, sender: Sender) -> None:
        self.world, self.broker, self.wait, self._step = world, broker, sender.wait, sender.step

    def ask(self, request: Callable[[], T]) -> T:
        """Return the answer; raises BrokerNotFoundError if there is none, although the broker may have done it."""
        world = self.world
        self._step()
        if world.now < self.broker.refuses_until:
            self.wait(20)
            raise BrokerNotFoundError("The broker refuses.")
        if world.chance(_SLOW):
            self.wait(world.random.randrange(1, 200))
        answer = request()
        if world.chance(_SLOW):
            self.wait(world.random.randrange(1, 200))
        return answer

    def loses(self) -> bool:
        """Return whether an answer is lost for good."""
        return self.world.chance(_LOST) and not self.world.is_calm


class SimulatedAdmin:
    """Asks about partitions and committed offsets (implements what the host uses of Admin)."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._broker = requests.broker

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        return {name: f"id of {name}" for name in names}

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._requests.ask(lambda: {each: self._broker.logs[each].start for each in partitions})

    def end_offsets(
        self, partitions: Sequence[TopicPartition], read_committed: bool = False
    ) -> dict[TopicPartition, int]:
        logs = self._broker.logs
        return self._requests.ask(
            lambda: {each: logs[each].stable_end if read_committed else logs[each].end for each in partitions}
        )

    def committed_offsets(
        self, group: str, partitions: Collection[TopicPartition], stable: bool = True
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        pauses = _pauses(_STABLE_MS)
        while True:
            try:
                return self._requests.ask(lambda: self._broker.fetch_offsets(partitions))
            except UnstableOffsetCommitError:
                pause = next(pauses, None)
                if pause is None:
                    raise
                self._requests.wait(pause)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        self._requests.ask(lambda: self._broker.delete_records(before))

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"The simulated admin has no {name}.")


class SimulatedFetcher:
    """Reads ranges of partitions (implements Fetcher)."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def fetch(
        self, partition: TopicPartition, start_offset: int, end_offset: int, read_committed: bool
    ) -> Iterator[RecordBatch]:
        log, position = self._requests.broker.logs[partition], start_offset
        assert read_committed
        assert end_offset <= log.end
        pauses = _pauses(_FETCH_MS)
        while position < end_offset:
            if position >= log.stable_end:
                pause = next(pauses, None)
                if pause is None:
                    raise KafkaError(f"No records of {partition} arrive.")
                self._requests.wait(pause)
                continue
            stop = min(position + LOT, end_offset, log.stable_end)
            rows = self._requests.ask(lambda start=position, stop=stop: log.read(start, stop))  # type: ignore[misc]  # defaults bind the loop's values
            position = stop
            if rows:
                yield batch_of(rows)

    def close(self) -> None:
        pass


class SimulatedConsumer:
    """Follows partitions (implements what the host uses of Consumer); it never waits."""

    def __init__(self, world: World, broker: Broker) -> None:
        self._world, self._broker = world, broker
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self._out_of_range: set[TopicPartition] = set()
        self._at_end: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}

    def incremental_assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.positions.update(positions)
        self.paused -= positions.keys()
        self._out_of_range -= positions.keys()
        for partition in positions:
            self._at_end.pop(partition, None)

    def incremental_unassign(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            del self.positions[partition]

    def leader_epochs(self) -> Mapping[TopicPartition, int]:
        return {}

    def known_ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return how far partitions can be read."""
        return {each: self._broker.logs[each].end for each in partitions if each in self.positions}

    def poll(self, timeout_ms: int, max_records: int) -> list[tuple[TopicPartition, RecordBatch]]:
        """Return some records of each partition."""
        arrived = []
        read = sorted(self.positions.keys() - self.paused - self._out_of_range)
        for partition in read:
            if self.positions[partition] < self._broker.logs[partition].start:
                self._out_of_range.add(partition)
                error = OffsetOutOfRangeError(f"{partition} has no records at {self.positions[partition]} any more.")
                error.partition = partition
                raise error
        for partition in read:
            log, position = self._broker.logs[partition], self.positions[partition]
            rows = log.read(position, log.stable_end)[: self._world.random.randrange(1, LOT)]
            if rows:
                self.positions[partition] = rows[-1][0] + 1
                arrived.append((partition, batch_of(rows)))
            elif self._at_end.get(partition) != log.stable_end:
                self._at_end[partition] = self.positions[partition] = self._reached[partition] = log.stable_end
        return arrived

    def reached_ends(self) -> dict[TopicPartition, int]:
        """Return the ends that were reached since the last time."""
        reached, self._reached = self._reached, {}
        return reached

    def close(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"The simulated consumer has no {name}.")


class SimulatedTransactionalProducer:
    """Writes transactions (implements TransactionalProducer): records are sent at once, later, or by the commit."""

    def __init__(self, requests: Requests, transactional_id: str) -> None:
        self._requests = requests
        self._broker = requests.broker
        self._id = transactional_id
        self._epoch: int | None = None
        self._is_open = False
        self._waiting: list[PartitionBatch] = []
        self._under_way: int | None = None
        """When the last records arrive."""
        self._ends: dict[TopicPartition, int] = {}
        self._failed: Exception | None = None
        self._ready()

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        epoch = self._begun()
        self._waiting.extend(output)
        world = self._requests.world
        if world.chance(0.5) and self._under_way is None:
            taken, self._waiting = self._waiting, []
            if world.chance(0.8):
                self._write(epoch, taken)
            else:  # it arrives, whatever becomes of the process
                latency = world.random.randrange(1, 3_000)
                self._under_way = world.now + latency
                world.after(latency, lambda: self._arrives(epoch, taken))
        if self._failed is not None:
            self._fail()

    def lags(self) -> bool:
        return self._requests.world.chance(0.1)

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: GroupIdentity
    ) -> dict[TopicPartition, int]:
        epoch = self._begun()
        try:
            if self._under_way is not None:
                self._requests.wait(self._under_way - self._requests.world.now)
            taken, self._waiting = self._waiting, []
            self._requests.ask(lambda: self._write(epoch, taken))
            if self._failed is not None:
                raise self._failed
            if offsets:
                self._requests.ask(lambda: self._broker.add_offsets(self._id, epoch, offsets, member))
            self._requests.ask(lambda: self._broker.end_transaction(self._id, epoch, is_aborted=False))
            if self._requests.loses():
                raise KafkaError("Nobody knows whether the transaction is committed.")
        except Exception:
            self._end()
            raise
        self._is_open = False
        ends, self._ends = self._ends, {}
        return ends

    def abort(self) -> None:
        self._end()
        self._ready()

    def _arrives(self, epoch: int, output: Sequence[PartitionBatch]) -> None:
        self._under_way = None
        self._write(epoch, output)

    def _write(self, epoch: int, output: Sequence[PartitionBatch]) -> None:
        try:
            ends = self._broker.write(self._id, epoch, output)
        except ProducerFencedError as error:
            self._failed = error if epoch == self._epoch else self._failed
        else:
            self._ends.update(ends)

    def _ready(self) -> int:
        if self._epoch is None:
            self._epoch = self._requests.ask(lambda: self._broker.begin_writing(self._id))
        return self._epoch

    def _begun(self) -> int:
        epoch = self._ready()
        self._is_open = True
        return epoch

    def _fail(self) -> None:
        error = self._failed
        self._end()
        assert error is not None
        raise error

    def _end(self) -> None:
        """Abort; a producer that cannot is thrown away, and the next one ends what it left open."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None and self._is_open and self._under_way is None:
            try:
                self._requests.ask(lambda: self._broker.end_transaction(self._id, epoch, is_aborted=True))
                self._epoch = epoch
            except StreamsError:
                pass
        self._is_open, self._waiting, self._ends, self._failed = False, [], {}, None

    def close(self) -> None:
        if self._is_open:
            self._end()


class SimulatedBatchProducer:
    """Writes without transactions (implements BatchProducer)."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._waiting: list[PartitionBatch] = []
        self._ends: dict[TopicPartition, int] = {}

    def send(self, output: Sequence[PartitionBatch], on_refused: OnRefused) -> None:
        self._waiting.extend(output)
        if self._requests.world.chance(0.5):
            self._write()

    def lags(self) -> bool:
        return self._requests.world.chance(0.1)

    def flush(self) -> dict[TopicPartition, int]:
        self._requests.ask(self._write)
        ends, self._ends = self._ends, {}
        return ends

    def _write(self) -> None:
        taken, self._waiting = self._waiting, []
        self._ends.update(self._requests.broker.append(taken))

    def close(self) -> None:
        self._waiting = []
