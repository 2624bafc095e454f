"""One run of the Spark query: its start from an application description, its stop after an epoch, and its end.

The driver handles everything before (checks, description) and after (another run, the end of the application). Driver
and source process exchange messages in a mailbox (`protocol/mailbox`), one for each run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from penstock.errors import StreamsError
from penstock.host.calls.measuring import CallFigures
from penstock.host.packing.tapped_records import decoded_records
from penstock.host.spark.driver.driver_session import DriverSession
from penstock.host.spark.planner import epoch_planner
from penstock.host.spark.planner.call_reports import CALLS_FILE, read_call_reports
from penstock.host.spark.planner.taps import read_tapped, read_taps, write_taps
from penstock.host.spark.protocol.application_description import ApplicationDescription, dump_description
from penstock.host.spark.protocol.failures import failure_of_exception
from penstock.host.spark.protocol.mailbox import Mailbox, Signal
from penstock.host.spark.protocol.rows import SCHEMA_DDL
from penstock.host.spark.versions import FEATURES, map_in_arrow, repartition_by_id
from penstock.host.spark.worker import sink, source
from penstock.host.spark.worker.stage import stage
from penstock.record import TopicPartition
from penstock.task.taps import TappedRecord

_TITLE_CHARACTERS = 400
LOOK_SECONDS = 0.05
"""How often the driver polls the query and its files."""


def start_query(
    description: ApplicationDescription, opened: DriverSession, location: str, until_end: bool, paused: bool
) -> RunningQuery:
    """Start the query of `description`.

    Args:
        description: what to run; its control directory is empty.
        opened: the session to run in.
        location: where Spark keeps its checkpoint.
        until_end: stop at the current ends of the topics.
        paused: begin paused.

    Raises:
        StreamsError: a user object cannot be sent to workers.
    """
    data = dump_description(description)
    mailbox = Mailbox(description.control_directory)
    mailbox.create()
    if paused:
        mailbox.send(Signal.PAUSE)
    with opened.starting() as own:
        own.conf.set("spark.sql.streaming.pollingDelay", f"{description.config['penstock.poll.ms']}ms")
        own.conf.set("spark.sql.shuffle.partitions", str(description.placement.sink_partitions))
        own.dataSource.register(source.source_class(data))
        own.dataSource.register(sink.sink_class(data))
        rows = own.readStream.format(source.FORMAT).load()
        for level in range(1, len(description.placement.levels)):
            rows = repartition_by_id(rows, description.placement.partitions[level], "dst")
            rows = map_in_arrow(rows, stage(data, level, level_title(description, level)), SCHEMA_DDL)
        rows = repartition_by_id(rows, description.placement.sink_partitions, "dst")
        writer = rows.writeStream.format(sink.FORMAT).queryName(_name(description))
        writer = writer.option("checkpointLocation", location)
        if until_end and FEATURES.admission_control:
            writer = writer.trigger(availableNow=True)
        elif until_end:
            mailbox.send(Signal.TO_END)
        query = writer.start()
    return RunningQuery(query, description, partial(opened.release, own))


def _name(description: ApplicationDescription) -> str:
    """Return the name of the query. Spark shows it with each of its jobs and stages."""
    levels = range(len(description.placement.levels))
    return f"{description.application_id} ({'; '.join(level_title(description, level) for level in levels)})"


def level_title(description: ApplicationDescription, level: int) -> str:
    """Return the title of a level in Spark's UI: its sub-topologies with their nodes.

    Spark also shows it in the plans of its SQL page.
    """
    numbers = sorted({task.subtopology for task in description.placement.levels[level]})
    texts = (
        f"sub-topology {n}: {', '.join(node.name for node in description.subtopologies[n].nodes)}" for n in numbers
    )
    title = f"level {level}: {'; '.join(texts)}"
    return title if len(title) <= _TITLE_CHARACTERS else f"{title[:_TITLE_CHARACTERS]}..."


class RunningQuery:
    """A started query. Thread-safe.

    Args:
        query: the query of Spark.
        description: the application that it runs.
        release: releases the session of the query.
    """

    def __init__(self, query: StreamingQuery, description: ApplicationDescription, release: Callable[[], None]) -> None:
        self.description = description
        self._query = query
        self._release = release
        self._is_active = True
        self._mailbox = Mailbox(description.control_directory)
        self._ends: bytes | None = None
        self._calls: bytes | None = None
        self._last_call_report = 0

    @property
    def is_active(self) -> bool:
        """Whether the query has not ended."""
        if self._is_active and not self._query.isActive:
            self._is_active = False
        return self._is_active

    @property
    def ended_by_pause(self) -> bool:
        """Whether a query with a planned end ended early because of a pause.

        No epochs are planned in a pause.
        """
        return self._mailbox.has(Signal.PAUSED)

    @property
    def is_at_end(self) -> bool:
        """Whether the query has reached its planned end and waits for `stop`.

        That is so if Spark cannot get an end from the source.
        """
        return self._mailbox.has(Signal.AT_END)

    def new_ends(self) -> dict[TopicPartition, int]:
        """Return the input ends last seen by the planner. Returns nothing if they are not new."""
        # compared as bytes: the driver looks many times a second, and there may be thousands of inputs
        before, self._ends = self._ends, self._mailbox.read(epoch_planner.ENDS_FILE)
        return {} if self._ends == before else epoch_planner.decoded_ends(self._ends)

    def new_calls(self) -> list[dict[str, CallFigures]]:
        """Return the reports on calls, by operator, that this function has not returned before."""
        before, self._calls = self._calls, self._mailbox.read(CALLS_FILE)  # compared as the ends are
        if self._calls == before:
            return []
        self._last_call_report, reports = read_call_reports(self._calls, self._last_call_report)
        return reports

    def pause(self) -> None:
        """Plan no epochs after the running one."""
        with suppress(FileNotFoundError):  # the query has ended
            self._mailbox.send(Signal.PAUSE)

    def tapped(self, taps: Mapping[str, int], node: str) -> list[TappedRecord]:
        """Return the last records of a node. The next epochs keep the records of `taps`."""
        if read_taps(self._mailbox) != taps:
            write_taps(self._mailbox, taps)
        return decoded_records(read_tapped(self._mailbox).get(node, ()))

    def resume(self) -> None:
        """Plan epochs again."""
        self._mailbox.withdraw(Signal.PAUSE)

    def go_to_end(self) -> None:
        """Stop at the ends that the inputs have now; `is_at_end` is set there."""
        with suppress(FileNotFoundError):  # the query has ended
            self._mailbox.send(Signal.TO_END)

    def finish_epoch(self, is_over: Callable[[], bool]) -> bool:
        """Plan no more epochs, and wait until the running one is committed.

        Return False if `is_over` returns True before that.
        """
        self._mailbox.send(Signal.STOP)
        while self.is_active and not self._mailbox.has(Signal.STOPPED):
            if is_over():
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def stop(self) -> None:
        """Stop immediately. The running epoch is abandoned; the next query on the checkpoint runs it again."""
        if self.is_active:
            with suppress(OSError):  # the query has ended
                self._mailbox.send(Signal.STOP)  # the planner may be waiting for answers of calls
            self._query.stop()

    def failure(self) -> tuple[StreamsError, str] | None:
        """Return the error and the output before it of the query that has ended, or None without an error."""
        exception: StreamingQueryException | None = self._query.exception()
        if exception is None:
            return None
        return failure_of_exception(f"of {self.description.application_id}", exception, self.description.failure_key)

    def close(self) -> None:
        """Release the session of the query, which has ended. Its failure is not known afterwards."""
        self._is_active = False
        self._release()
