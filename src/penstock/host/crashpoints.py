"""Named points at which a test can kill a process as with `kill -9`; inert unless the environment sets them.

`PENSTOCK_CRASH_POINTS` is a list of orders `<name>[@<epoch>][:jvm|:driver|:group|:stop]`, with spaces between them. An
order names a point, the first epoch from which on it counts (0 if not given), and which other processes die before the
process that reaches the point (a Python worker, or the process of the source or of the sink's commit): `:jvm` the JVM
above it, which is the executor where there are executors, `:driver` the program above all JVMs, `:group` the process
group: of a worker that is the Python daemon with all its workers. With `:stop` nobody dies: the process that reaches
the point stands still (SIGSTOP), until it gets SIGCONT. `PENSTOCK_CRASH_DIRECTORY` must be given too: the process that
makes the file `<order>` there is the one that is struck, so an order strikes once however many processes and restarts
come past its point. Both variables are read once a process and must be in the environment from which the JVM is
started. Ancestors are looked up in /proc: Linux only.

The points, in the order in which an epoch meets them:

    source.planned          the source process has decided the end of an epoch, Spark does not know it yet
    source.partitions       the source process hands out the input partitions of a planned epoch
    task.before_process     a worker has opened the state of a task, no user function has run
    task.after_process      the user's functions have run, nothing of the commit is written
    segment.before_write    the commit of a task is encoded, no segment is written
    segment.torn_write      a segment is written under its temporary name, not yet renamed
    segment.after_write     the segments of a task are durable, the driver does not know them yet
    carried.torn_write      the rows that a task hands to the next epoch are written under a temporary name
    carried.after_write     they are durable, the driver does not know them yet
    base.after_apply        the base of a task has been advanced to its head
    transaction.before      a sink partition has all its rows, nothing is sent
    transaction.open        the records are sent, the transaction is open
    transaction.after       the transaction is committed, the driver does not know it
    manifest.before_write   the driver has checked all reports of an epoch, its manifest is not written
    manifest.torn_write     the manifest is written under its temporary name, not yet renamed
    manifest.after_write    the manifest is durable, Spark's commit log does not have the epoch

And where a driver starts the next topology version of a checkpoint, the epoch being that of its first manifest:

    topology.before         everything is checked, nothing is written
    topology.segments       segments are copied or rewritten
    topology.torn_manifest  the first manifest is written under its temporary name
    topology.manifest       the first manifest is there, the metadata names the old version
    topology.description    the application description is written too
    topology.after          the metadata names the next version

And where a savepoint is restored, or the state of a store is dropped, the epoch being that of the manifest:

    restore.before          everything is checked, nothing is written
    restore.segments        segments are copied, or re-partitioned
    restore.torn_manifest   the manifest is written under its temporary name
    restore.manifest        the manifest is there
    restore.description     the application description is there too
    restore.after           the metadata is there, which makes all of it a checkpoint
    drop.before             everything is checked, nothing is written
    drop.torn_manifest      the first manifest of a version without the store is written under its temporary name
    drop.manifest           it is there, the metadata names the old version
    drop.after              the metadata names the version without the store

And of an instance on the threads host, the epoch being the number of commits since its start, 0 outside of commits:

    commit.prepared         the caches of all tasks are flushed, nothing of the end of the commit is sent
    commit.written          at least once: all records are written, no offset is committed
    commit.offsets          exactly once: records and offsets are sent, the transaction is open
    commit.committed        offsets are committed, no base has the changes
    commit.applied          the base of one task has the changes
    commit.ended            all bases have them
    group.planned           the leader of a rebalance has planned, the group does not have the assignments
    group.told              they are sent, nothing is answered
    group.assigned          the group has assigned tasks, nothing is opened or closed for that
    group.given_up          a task is closed behind its last commit, the group does not know it
    state.opened            the base of a task is open, nothing of its changelogs is read
    state.read              the base has a part of what it lacks of a changelog
    state.restored          the state is restored, no processor is initialised
    state.sealed            the instance ends, and some of its bases are marked as complete
    state.cleaned           the state of a task that others have is deleted

And where it writes, or begins with, a snapshot of `penstock.state.remote.dir`:

    snapshot.segment        a segment of a snapshot is durable, nothing names it
    snapshot.torn_write     all of them are, and what names them is written under its temporary name
    snapshot.written        the snapshot is there, older ones are not deleted
    snapshot.loaded         the base of a task has a part of a snapshot

And of `penstock redrive` and `penstock mirror`, the epoch being the number of transactions since the start:

    transfer.fenced         earlier processes are fenced, the progress is not read
    transfer.read           the records of a transaction are read, nothing of it is sent
    transfer.sent           records and progress are sent, the transaction is open
    transfer.committed      the transaction is committed
"""

from __future__ import annotations

import os
import signal
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

TRANSFER_POINTS = (
    "transfer.fenced",
    "transfer.read",
    "transfer.sent",
    "transfer.committed",
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
    known = (*POINTS, *TOPOLOGY_POINTS, *SAVEPOINT_POINTS, *THREADS_POINTS, *SNAPSHOT_POINTS, *TRANSFER_POINTS)
    is_point = point in known
    if not is_point or also not in ("", "jvm", "driver", "group", "stop"):
        raise ValueError(
            f"PENSTOCK_CRASH_POINTS: {text!r} is not a crash point: expected one of {', '.join(POINTS)}, then "
            "@<epoch>, :jvm, :driver, :group or :stop."
        )
    return _Order(point, int(epoch or 0), also, Path(os.environ["PENSTOCK_CRASH_DIRECTORY"]) / text)


def crash_point(name: str, epoch: int) -> None:
    """Die or stand still here if the environment asks for the point `name` at `epoch` and nobody has for it yet."""
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
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    if order.also == "driver":
        os.kill(_ancestors()[-1], signal.SIGKILL)
    if order.also == "jvm":
        os.kill(_ancestors()[0], signal.SIGKILL)
    if order.also == "group":
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _ancestors() -> list[int]:
    """Return the pids of the JVMs above this process, nearest first, and of the program that started the last of
    them."""
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
