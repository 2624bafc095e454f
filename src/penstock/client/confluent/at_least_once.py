"""The writer of epochs without transactions, for brokers or applications without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from confluent_kafka import KafkaError as Code
from confluent_kafka import KafkaException, Producer

from penstock.client.api import GroupCommit, OnRefused
from penstock.client.confluent.connection import ClientConnection
from penstock.client.confluent.delivery_reports import DeliveryReports
from penstock.client.confluent.pace import PATIENT, drained_while_taken
from penstock.client.confluent.refusals import (
    GAPLESS,
    ONE_BY_ONE,
    RefusedError,
    fail_on_refused,
    is_held_back,
    is_refusal,
    only,
    replaced,
)
from penstock.client.confluent.sending import send_output
from penstock.client.confluent.time_zero import TimeZero
from penstock.client.failures import Right
from penstock.client.settings import PRODUCER, client_settings
from penstock.client.sockets.cluster import Cluster
from penstock.client.sockets.offsets import commit_offsets
from penstock.config import StreamsConfig
from penstock.errors import counted
from penstock.record import PartitionBatch


class _GaplessProducer(Producer):
    """A producer that ends when a batch is refused.

    The delivery report of each record has the error; no call raises it.
    """

    def poll(self, timeout: float = -1) -> int:
        """Serve reports for up to `timeout` seconds."""
        try:
            return super().poll(timeout)
        except KafkaException as error:
            _raise_unreported(error)
            return 0

    def flush(self, timeout: float = -1) -> int:
        """Send the queued records and serve reports for up to `timeout` seconds.

        Returns the number of remaining records.
        """
        try:
            return super().flush(timeout)
        except KafkaException as error:
            _raise_unreported(error)
            return len(self)


def _raise_unreported(error: KafkaException) -> None:
    """Raise `error` unless it only reports a refused batch, as delivery reports also do."""
    if error.args[0].code() != Code._GAPLESS_GUARANTEE:
        raise error


class _Unwritten(NamedTuple):
    """Unwritten rows of an output.

    refused: rows that brokers refused, or that were in a batch with such a row. held_back: rows not sent because of
    these.
    """

    refused: list[RefusedError]
    held_back: list[RefusedError]


class AtLeastOnceWriter:
    """Writes without transactions: an epoch that runs again after a crash is written again.

    The records of a partition are written in order. Records after a refused batch wait until the valid records of the
    batch are written. The first write connects.

    Args:
        config: the configuration of the application.
        timeout_ms: the timeout (ms) of each wait.
        before_write: called before anything is sent; its errors are raised.
    """

    def __init__(
        self, config: StreamsConfig, timeout_ms: int = 60_000, before_write: Callable[[], object] = lambda: None
    ) -> None:
        self._before_write = before_write
        self._config = config
        self._timeout_ms = timeout_ms
        self._producer: tuple[ClientConnection, Producer] | None = None
        self._cluster: Cluster | None = None
        self._reports = DeliveryReports()
        self._time_zero = TimeZero(config, timeout_ms, self._has_written_all)

    def write(
        self,
        epoch: int,
        owner: str,
        output: Sequence[PartitionBatch],
        on_refused: OnRefused = fail_on_refused,
        note: str = "",
        group_commit: GroupCommit | None = None,
    ) -> bool:
        """Write `output` and return True when the brokers have it.

        Raises KafkaError if they do not accept it, and the errors of `on_refused` for a record that they refuse. owner,
        note: unused, because brokers do not record the epoch. group_commit: committed after the output.
        """
        self._before_write()
        instead: list[PartitionBatch] = []
        left = list(output)
        while True:
            unwritten = self._send(epoch, left, one_by_one=False)
            if not unwritten.refused:
                break
            again = only(left, unwritten.refused)
            refused = self._send(epoch, again, one_by_one=True).refused
            instead.extend(replaced(again, refused, on_refused)[len(again) :])
            left = only(left, unwritten.held_back)
        if instead:
            refused = self._send(epoch, instead, one_by_one=True).refused
            replaced(instead, refused, fail_on_refused)
        if group_commit is not None:
            self._cluster = self._cluster or Cluster(self._config, self._timeout_ms)
            commit_offsets(self._cluster, *group_commit)
        return True

    def _send(self, epoch: int, output: Sequence[PartitionBatch], one_by_one: bool) -> _Unwritten:
        """Send `output` and return its unwritten rows."""
        connection, producer = self._ready(one_by_one)
        doing = f"writing epoch {epoch}"
        self._reports.forget()
        at_once: list[RefusedError] = []
        try:
            send_output(connection, producer, self._time_zero, output, at_once.append, _is_unwritten)
            remaining = drained_while_taken(connection, producer)
        except KafkaException as error:
            self._producer = None
            topics = dict.fromkeys(each.topic for each in output)
            connection.fail(error.args[0], doing, Right("WRITE", "topic", " ".join(topics)))
        failed = self._reports.first_failure()
        if failed is not None:
            self._producer = None
            connection.fail(failed[0], f"{doing} to {failed[1]}", Right("WRITE", "topic", failed[1].topic))
        if remaining:
            self._producer = None
            connection.fail(Code(Code._TIMED_OUT, f"{counted(remaining, 'record')} not accepted"), doing)
        refused = [each for each in at_once if is_refusal(each.code)] + self._reports.rows(output, is_refusal)
        held_back = [each for each in at_once if is_held_back(each.code)] + self._reports.rows(output, is_held_back)
        if held_back and not refused:
            self._producer = None
            connection.fail(held_back[0].code, doing)
        if refused or one_by_one:
            self._producer = None
        return _Unwritten(refused, held_back)

    def _has_written_all(self) -> bool:
        """Wait for the records sent, and return whether no refused record holds back later ones."""
        connection, producer = self._producer or self._ready(one_by_one=False)
        drained_while_taken(connection, producer)
        return not (isinstance(producer, _GaplessProducer) and self._reports.failures)

    def _ready(self, one_by_one: bool) -> tuple[ClientConnection, Producer]:
        if self._producer is None:
            forced = {"on_delivery": self._reports.delivered, "linger.ms": 1, **(ONE_BY_ONE if one_by_one else GAPLESS)}
            connection = ClientConnection(client_settings(self._config, PRODUCER, forced, PATIENT), self._timeout_ms)
            producer = connection.make(Producer if one_by_one else _GaplessProducer)
            connection.serve = producer.poll
            self._producer = connection, producer
        return self._producer

    def close(self) -> None:
        """Release connections and threads."""
        self._producer = None
        self._time_zero.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _is_unwritten(code: Code) -> bool:
    return is_refusal(code) or is_held_back(code)
