"""Named points at which tests can kill a process as with `kill -9`.

They are inert unless the environment sets them. `PENSTOCK_CRASH_POINTS` is a list of orders
`<name>[@<epoch>][:jvm|:driver|:group|:stop]`, separated by spaces. An order names a point, the first epoch to which it
applies (default 0), and further processes to kill before the process that reaches the point (a Python worker, or the
process of the source or of the sink's commit): `:jvm` the JVM above it, which is the executor if there are executors,
`:driver` the program above all JVMs, `:group` the process group: for a worker, the Python daemon with all its workers.
`:stop` kills no process: the process that reaches the point is stopped (SIGSTOP) until it receives SIGCONT.
`PENSTOCK_CRASH_DIRECTORY` is also required: an order applies to the process that creates the file `<order>` there, so
it applies once, however many processes and restarts pass its point. Each process reads both variables once; they must
be in the environment from which the JVM is started. Ancestors are looked up in /proc: Linux only.

The points, in the order of an epoch:

    source.planned          the source process has decided the end of an epoch, unknown to Spark
    source.partitions       the source process returns the input partitions of a planned epoch
    task.before_process     a worker has opened the state of a task, no user function has run
    task.after_process      the user's functions have run, the commit is not written
    segment.before_write    the commit of a task is encoded, no segment is written
    segment.torn_write      a segment is written under its temporary name, not yet renamed
    segment.after_write     the segments of a task are durable, unknown to the driver
    carried.torn_write      the rows carried over to the next epoch are written under a temporary name
    carried.after_write     they are durable, unknown to the driver
    result.torn_write       the result of a task is written to the result log under its temporary name
    result.after_write      the result of a task is in the result log, no row has left the worker
    base.after_apply        the base of a task has been advanced to its head
    transaction.before      a sink partition has all its rows, no record is sent
    transaction.open        the records are sent, the transaction is open
    transaction.after       the transaction is committed, unknown to the driver
    manifest.before_write   the driver has checked all reports of an epoch, its manifest is not written
    manifest.torn_write     the manifest is written under its temporary name, not yet renamed
    manifest.after_write    the manifest is durable, Spark's commit log does not have the epoch

At the start of the next topology version of a checkpoint, with the epoch of its first manifest:

    topology.before         everything is checked, nothing is written
    topology.segments       segments are copied or rewritten
    topology.torn_manifest  the first manifest is written under its temporary name
    topology.manifest       the first manifest exists, the metadata names the old version
    topology.description    the application description is written too
    topology.after          the metadata names the next version

At the restore of a savepoint, or the drop of a store's state, with the epoch of the manifest:

    restore.before          everything is checked, nothing is written
    restore.segments        segments are copied, or re-partitioned
    restore.torn_manifest   the manifest is written under its temporary name
    restore.manifest        the manifest exists
    restore.description     the application description exists too
    restore.after           the metadata exists, which completes the checkpoint
    drop.before             everything is checked, nothing is written
    drop.torn_manifest      the first manifest of a version without the store is written under its temporary name
    drop.manifest           it exists, the metadata names the old version
    drop.after              the metadata names the version without the store

In `penstock shadow switch`, with the epoch of the first manifest of the new program, 0 before it is known:

    switch.asked            the old program is asked to end
    switch.ended            it has ended, the new one has not processed its last records
    switch.before           both have processed the same input, nothing is written
    switch.segments         segments are copied
    switch.torn_manifest    the first manifest is written under its temporary name
    switch.manifest         the manifest exists, the metadata name the old program
    switch.description      the application description exists too
    switch.after            the metadata name the new program

In an instance on the threads host, with the number of commits since its start as epoch, 0 outside of commits:

    commit.prepared         the caches of all tasks are flushed, the end of the commit is not sent
    commit.written          at least once: all records are written, no offset is committed
    commit.offsets          exactly once: records and offsets are sent, the transaction is open
    commit.committed        offsets are committed, no base has the changes
    commit.applied          the base of one task has the changes
    commit.ended            all bases have them
    group.planned           the leader of a rebalance has planned, the assignments are not sent to the group
    group.told              they are sent, no answer has arrived
    group.assigned          the group has assigned tasks, but not opened or closed any
    group.given_up          a task is closed after its last commit, unknown to the group
    state.opened            the base of a task is open, its changelogs are not read
    state.read              the base has a part of its missing changelog records
    state.restored          the state is restored, no processor is initialised
    state.sealed            the instance ends, some of its bases are marked as complete
    state.cleaned           the state of a task of another instance is deleted

When it writes, or starts from, a snapshot of `penstock.state.remote.dir`:

    snapshot.segment        a segment of a snapshot is durable, but in no manifest
    snapshot.torn_write     all segments are, and their manifest is written under its temporary name
    snapshot.written        the snapshot exists, older ones are not deleted
    snapshot.loaded         the base of a task has a part of a snapshot

In the process that makes calls, with the number of its attempts of an operator, or of its written answers, as epoch:

    call.made               an attempt begins, its function is not called
    call.answered           the function has returned, its answer is not written
    call.written            brokers have the answer, no task has received it

In the program that copies a topic to a table of a lake, with the number of commits since the start as epoch:

    lake.read               the records of a commit are read, the table is unchanged
    lake.committed          the table has the records and their offsets, the topic still has them

In `penstock redrive` and `penstock mirror`, with the number of transactions since the start as epoch:

    transfer.fenced         earlier processes are fenced, the progress is not read
    transfer.read           the records of a transaction are read, but not sent
    transfer.sent           records and progress are sent, the transaction is open
    transfer.committed      the transaction is committed
"""

from __future__ import annotations

import os
import signal
import threading
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

POINTS = (
    "source.planned",
    "source.partitions",
    "task.before_process",
    "task.after_process",
    "segment.before_write",
    "segment.torn_write",
    "segment.after_write",
    "carried.torn_write",
    "carried.after_write",
    "result.torn_write",
    "result.after_write",
    "base.after_apply",
    "transaction.before",
    "transaction.open",
    "transaction.after",
    "manifest.before_write",
    "manifest.torn_write",
    "manifest.after_write",
)

TOPOLOGY_POINTS = (
    "topology.before",
    "topology.segments",
    "topology.torn_manifest",
    "topology.manifest",
    "topology.description",
    "topology.after",
)

SAVEPOINT_POINTS = (
    "restore.before",
    "restore.segments",
    "restore.torn_manifest",
    "restore.manifest",
    "restore.description",
    "restore.after",
    "drop.before",
    "drop.torn_manifest",
    "drop.manifest",
    "drop.after",
)

SWITCH_POINTS = (
    "switch.asked",
    "switch.ended",
    "switch.before",
    "switch.segments",
    "switch.torn_manifest",
    "switch.manifest",
    "switch.description",
    "switch.after",
)

THREADS_POINTS = (
    "commit.prepared",
    "commit.written",
    "commit.offsets",
    "commit.committed",
    "commit.applied",
    "commit.ended",
    "group.planned",
    "group.told",
    "group.assigned",
    "group.given_up",
    "state.opened",
    "state.read",
    "state.restored",
    "state.sealed",
    "state.cleaned",
)

SNAPSHOT_POINTS = (
    "snapshot.segment",
    "snapshot.torn_write",
    "snapshot.written",
    "snapshot.loaded",
)

CALL_POINTS = (
    "call.made",
    "call.answered",
    "call.written",
)

LAKE_POINTS = ("lake.read", "lake.committed")

TRANSFER_POINTS = (
    "transfer.fenced",
    "transfer.read",
    "transfer.sent",
    "transfer.committed",
)


ALL_POINTS = (
    *POINTS,
    *TOPOLOGY_POINTS,
    *SAVEPOINT_POINTS,
    *SWITCH_POINTS,
    *THREADS_POINTS,
    *SNAPSHOT_POINTS,
    *CALL_POINTS,
    *LAKE_POINTS,
    *TRANSFER_POINTS,
)


class _Order(NamedTuple):
    point: str
    epoch: int
    also: str
    once: Path


@lru_cache(maxsize=1)
def _orders() -> tuple[_Order, ...]:
    return tuple(map(_order, os.environ.get("PENSTOCK_CRASH_POINTS", "").split()))


def _order(text: str) -> _Order:
    head, _, also = text.partition(":")
    point, _, epoch = head.partition("@")
    if point not in ALL_POINTS or also not in ("", "jvm", "driver", "group", "stop"):
        raise ValueError(
            f"PENSTOCK_CRASH_POINTS: {text!r} is not a crash point: expected one of {', '.join(ALL_POINTS)}, then "
            "@<epoch>, :jvm, :driver, :group or :stop."
        )
    return _Order(point, int(epoch or 0), also, Path(os.environ["PENSTOCK_CRASH_DIRECTORY"]) / text)


def crash_point(name: str, epoch: int) -> None:
    """Kill or stop this process if the environment orders it for `name` and `epoch`. An order applies once."""
    for order in _orders():
        if order.point == name and epoch >= order.epoch:
            _strike(order, epoch)


def _strike(order: _Order, epoch: int) -> None:
    try:
        with order.once.open("x") as file:
            file.write(f"epoch {epoch} pid {os.getpid()}\n")
    except FileExistsError:
        return
    if order.also == "stop":
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # os.kill would let this thread run for a moment
        return
    if order.also == "driver":
        os.kill(_ancestors()[-1], signal.SIGKILL)
    if order.also == "jvm":
        os.kill(_ancestors()[0], signal.SIGKILL)
    if order.also == "group":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _ancestors() -> list[int]:
    """Return the pids of the JVMs above this process, nearest first.

    The last pid is that of the program that started the last JVM.
    """
    found: list[int] = []
    pid = os.getppid()
    while pid > 1:
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["Name"] == "java":
            found.append(pid)
        elif found:
            return [*found, pid]
        pid = int(fields["PPid"])
    return found
