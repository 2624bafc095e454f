"""Plays Spark's part in one process: the same source, stages and sink, without a JVM, one call after the other.

Steps, order and replays are those of a micro-batch: offset log, partitions, tasks, sink, commit, commit log. A test may
give up an epoch anywhere by an exception and go on with `restart`, as a new driver does on the files of the old one.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.client.api import Admin
from penstock.clock import Clock
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.spark.checkpoints.checkpoint import checkpoint_of
from penstock.host.spark.failures import QueryFailedError, failure_in
from penstock.host.spark.preparation import Prepared, prepare
from penstock.host.spark.recipe import Recipe, dump_recipe
from penstock.host.spark.worker.sink import EpochSink
from penstock.host.spark.worker.source import EpochReader
from penstock.host.spark.worker.stage import run_level
from penstock.plan.topology import Topology


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
    ) -> None:
        """Start a first driver. clock: by which epochs are planned, None for that of the machine. tells_restores: as in
        Recipe."""
        self._topology = topology
        self._config = config
        self._admin = admin
        self._parallelism = parallelism
        self._clock = clock
        self._tells_restores = tells_restores
        self.restart()

    def restart(self, until_end: bool = False) -> None:
        """Start a new driver on what is there; the epoch that was planned last is run again if it is not committed.
        until_end: read to the ends of the topics as they are now, and finish."""
        while (prepared := self._prepare()).finishes:
            self._load(prepared.recipe)
            self.epoch()
        self._load(prepared.recipe)
        if until_end:
            self._reader.prepareForTriggerAvailableNow()

    def change(self, topology: Topology) -> None:
        """Start a new driver with another program."""
        self._topology = topology
        self.restart()

    def _prepare(self) -> Prepared:
        checkpoint = checkpoint_of(self._config)
        built = self._topology.build(str(self._config["application.id"]))
        control = f"{self._config['state.dir']}/control"
        return prepare(built, self._config, checkpoint, self._admin, self._parallelism, control, self._clock)

    def _load(self, recipe: Recipe) -> None:
        """Take a recipe, and the logs of its query as they are on disk."""
        self.recipe = recipe = replace(recipe, tells_restores=self._tells_restores)
        self._data = dump_recipe(recipe)
        self._reader = EpochReader(self._data)
        location = Path(checkpoint_of(recipe.config).spark_location(recipe.query_id))
        self._offsets, self._commits = location / "offsets", location / "commits"
        self._offsets.mkdir(parents=True, exist_ok=True)
        self._commits.mkdir(exist_ok=True)
        (location / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        logged = sorted(self._offsets.iterdir(), key=lambda file: int(file.name))
        self._offset_log: list[dict[str, Any]] = [json.loads(file.read_text().splitlines()[-1]) for file in logged]
        self._committed = len(list(self._commits.iterdir()))

    def epoch(self) -> bool:
        """Run the next epoch, or the one that was planned and not committed; return False where nothing is due."""
        if self._committed < len(self._offset_log):
            end = self._offset_log[self._committed]
        else:
            start = self._start()
            end = self._reader.latestOffset(start, ReadAllAvailable())
            if end == start:
                return False
            self._offsets.mkdir(parents=True, exist_ok=True)  # as Hadoop does, where another driver has deleted it
            (self._offsets / str(len(self._offset_log))).write_text(f"v1\n{{}}\n{json.dumps(end)}")
            self._offset_log.append(end)
        self.run(self._start(), end)
        (self._commits / str(self._committed)).write_text('v1\n{"nextBatchWatermarkMs":0}')
        self._committed += 1
        self._reader.commit(end)
        return True

    @property
    def epochs(self) -> int:
        """The number of committed epochs."""
        return self._committed

    def run_to_end(self) -> None:
        """Run epochs until nothing is due."""
        while self.epoch():
            pass

    def close(self) -> None:
        """Release the clients of the source process."""
        self._reader.stop()

    def _start(self) -> dict[str, Any]:
        return self._offset_log[self._committed - 1] if self._committed else self._reader.initialOffset()

    def run(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Run the epoch from `start` to `end`."""
        placement = self.recipe.placement
        partitions = [pickle.loads(pickle.dumps(each)) for each in self._reader.partitions(start, end)]
        frames = [frame for partition in partitions for frame in self._reader.read(partition)]
        for level in range(1, len(placement.levels)):
            shuffled = _shuffle(frames, placement.partitions[level])
            frames = [frame for part in shuffled for frame in run_level(self._data, level, part)]
        sink = EpochSink(self._data)
        messages = [sink.write(iter(part)) for part in _shuffle(frames, placement.sink_partitions)]
        sink.commit(list(messages), len(self._offset_log) - 1)


def failure_of(run: Callable[[], object]) -> StreamsError:
    """Return the error with which `run`, such as `query.run_to_end`, ends a query."""
    with pytest.raises(QueryFailedError) as caught:
        run()
    failure = failure_in(str(caught.value))
    assert failure is not None
    return failure[0]


def _shuffle(frames: list[pa.RecordBatch], partitions: int) -> Iterator[list[pa.RecordBatch]]:
    table = pa.Table.from_batches(frames)
    for number in range(partitions):
        part = table.filter(pa.compute.equal(table["dst"], number))
        yield list(reversed(part.to_batches()))  # a shuffle promises no order
