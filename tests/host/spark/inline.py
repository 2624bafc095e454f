"""Plays Spark's part in one process: the same source, stages and sink, without a JVM, one call after the other.

Steps and order are those of a micro-batch: offset, partitions, tasks, sink, commit. A test may abort an epoch anywhere
with an exception, run it again with `epoch`, as Spark runs tasks again, or continue with `restart`, as a new driver
does on the files of the old one.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.api import Admin
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.api import StateQueries
from penstock.host.open import open_state
from penstock.host.spark import clients
from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from penstock.host.spark.driver.preparation import PreparedQuery, prepare
from penstock.host.spark.protocol.application_description import ApplicationDescription, dump_description
from penstock.host.spark.protocol.failures import QueryFailedError, decode_failure
from penstock.host.spark.protocol.mailbox import Mailbox, Signal
from penstock.host.spark.protocol.rows import read_rows
from penstock.host.spark.worker import sink
from penstock.host.spark.worker.bases import seal_bases
from penstock.host.spark.worker.sink import EpochSink
from penstock.host.spark.worker.source import EpochReader
from penstock.host.spark.worker.stage import run_level
from penstock.plan.topology import Topology
from penstock_broker.common.clock import Clock


class InlineQuery:
    """One application, run epoch by epoch."""

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        admin: Admin,
        parallelism: int = 2,
        clock: Clock | None = None,
        tells_restores: bool = False,
        until_end: bool = False,
    ) -> None:
        """Start a first driver. clock: by which epochs are planned, None for that of the machine. tells_restores: as in
        ApplicationDescription. until_end: as in `restart`."""
        self._topology = topology
        self._config = config
        self._admin = admin
        self._parallelism = parallelism
        self._clock = clock
        self._tells_restores = tells_restores
        self._end_calls: Callable[[], None] = lambda: None
        self.restart(until_end)

    def restart(self, until_end: bool = False) -> None:
        """Start a new driver on what is there; the epoch that was planned last is run again if it is not committed.
        until_end: read to the ends of the topics as they are now, and finish."""
        self._end_calls()  # a process that has ended makes none
        while (prepared := self._prepare()).finishes:
            self._load(prepared.description)
            self.epoch()
        self._load(prepared.description)
        if until_end:
            self._reader.fix_end()

    def change(self, topology: Topology) -> None:
        """Start a new driver with another program."""
        self._topology = topology
        self.restart()

    def _prepare(self) -> PreparedQuery:
        checkpoint = checkpoint_of(self._config)
        built = self._topology.build(str(self._config["application.id"]))
        control = f"{self._config['state.dir']}/control"
        return prepare(built, self._config, checkpoint, self._admin, self._parallelism, control, self._clock)

    def _load(self, description: ApplicationDescription) -> None:
        """Take a description, for a new query of Spark."""
        self.description = description = replace(
            description, process_id=uuid.uuid4().hex, tells_restores=self._tells_restores
        )
        self._data = dump_description(description)
        self._reader = EpochReader(self._data)
        self._end_calls = self._reader.stop if description.placement.task_topics else lambda: None
        self._committed = self._reader.first_offset()
        self._planned: dict[str, Any] | None = None

    def epoch(self) -> bool:
        """Run the next epoch, or the one that was planned and not committed; return False if nothing is due."""
        if self._planned is None:
            end = self._reader.next_offset(self._committed)
            if end == self._committed:
                return False
            self._planned = end
        self.run(self._committed, self._planned)
        self._committed, self._planned = self._planned, None
        self._reader.commit(self._committed)
        return True

    @property
    def epochs(self) -> int:
        """The last committed epoch."""
        return int(self._committed["epoch"])

    def run_to_end(self) -> None:
        """Run epochs until nothing is due."""
        while self.epoch():
            pass

    def queries(self) -> StateQueries:
        """Return what reads the checkpoint; whoever asks closes it."""
        return open_state(self._topology, self._config)

    def pause(self) -> None:
        """Plan no epochs until `resume`."""
        self._mailbox().send(Signal.PAUSE)

    def resume(self) -> None:
        """Plan epochs again."""
        self._mailbox().withdraw(Signal.PAUSE)

    def _mailbox(self) -> Mailbox:
        mailbox = Mailbox(self.description.control_directory)
        mailbox.create()
        return mailbox

    def close(self) -> None:
        """Release the clients of the source process."""
        self._reader.stop()

    def stop(self) -> None:
        """End as a driver does that is closed, so that the next one trusts the bases."""
        self.close()
        config = self.description.config
        seal_bases(Path(config["state.dir"]) / self.description.application_id, self.description.process_id)

    def run(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Run the epoch from `start` to `end`."""
        placement = self.description.placement
        partitions = [pickle.loads(pickle.dumps(each)) for each in self._reader.partitions(start, end)]
        frames = [frame for partition in partitions for frame in self._reader.read(partition)]
        for level in range(1, len(placement.levels)):
            shuffled = _shuffle(frames, placement.partitions[level])
            frames = [frame for part in shuffled for frame in run_level(self._data, level, part)]
        sink = EpochSink(self._data)
        messages = [sink.write(read_rows(part)) for part in _shuffle(frames, placement.sink_partitions)]
        sink.commit(list(messages))


class InlineProgram:
    """A query as a program of any host (implements Program): errors are those that end an application."""

    def __init__(self, query: InlineQuery) -> None:
        self._query = query
        self._queries: list[StateQueries] = []

    def run_to_end(self) -> None:
        """Run epochs until nothing is due."""
        try:
            self._query.run_to_end()
        except QueryFailedError as error:
            failed, _ = decode_failure(error.failure)
            raise failed from failed.__cause__

    def advance(self) -> None:
        """Run the epochs that are due."""
        self.run_to_end()

    def pause(self) -> None:
        """Plan no epochs until `resume`."""
        self._query.pause()

    def resume(self) -> None:
        """Plan epochs again."""
        self._query.resume()

    def restart(self) -> None:
        """Start a new driver on what is there."""
        self._query.restart()

    def change(self, topology: Topology) -> None:
        """Start a new driver with another program."""
        self._query.change(topology)

    def queries(self) -> StateQueries:
        """Return what reads the checkpoint, until the program is closed."""
        found = self._query.queries()
        self._queries.append(found)
        return found

    def close(self) -> None:
        """Release the clients, and what reads the checkpoint."""
        for each in self._queries:
            each.close()
        self._query.close()
        end_clients()


def end_clients() -> None:
    """Release the clients that a worker of Spark keeps for the life of its process: tests run workers in this process,
    and each client has threads that wake now and then, and open files."""
    for kept in (clients.open_fetcher, clients.open_admin):
        kept.cache_clear()
    sink._writer.release_all()


def failure_of(run: Callable[[], object]) -> StreamsError:
    """Return the error with which `run`, such as `query.run_to_end`, ends a query."""
    with pytest.raises(QueryFailedError) as caught:
        run()
    return decode_failure(caught.value.failure)[0]


def _shuffle(frames: list[pa.RecordBatch], partitions: int) -> Iterator[list[pa.RecordBatch]]:
    table = pa.Table.from_batches(frames)
    for number in range(partitions):
        part = table.filter(pa.compute.equal(table["dst"], number))
        yield list(reversed(part.to_batches()))  # a shuffle promises no order
