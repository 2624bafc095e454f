"""The result log: the results of tasks in an epoch that is not yet in a manifest.

Sink partitions commit one by one. If an epoch runs again, some of its output may be in topics already, so each task
must give the same result again, although a service that a function calls may answer otherwise. So a task writes its
result here before any row leaves the worker, and later attempts take it from here instead of a run.

Two attempts of a task may run at the same time, such as one on an executor that Spark has lost and that still works.
They agree on one result. pyarrow cannot create an object of an object store on condition that it does not exist, so
the agreement needs only writes, and listings that show all earlier writes ("commit-adopt"). In each round, an attempt
- proposes a result and lists the proposals. It votes "only" for its own if there is no other, otherwise "several";
- lists the votes. Without "several", its result is agreed. Otherwise the next round decides, in which it proposes the
  result with the vote "only", or the first of the proposals.

At most one result of a round has the vote "only": of two attempts, the one that proposes later sees both proposals.
After an attempt has seen no "several", each attempt that votes later sees its "only", and proposes that result. The
proposals of the first round are the files with the results. A single attempt takes two files and three listings.

A name is `<task>.<run>.<round>.<kind>.<digest of the result>`, in a directory for each epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from penstock.host.spark.checkpoints.documents import damaged
from penstock.host.storage.sealed_files import digest_of

_PROPOSAL, _ONLY, _SEVERAL = "proposal", "only", "several"


class ResultLog:
    """The results of one task in one epoch.

    Args:
        checkpoint: the checkpoint of the application.
        epoch: the number of the epoch.
        task: the id of the task.
        run: the program and what the task processes, as letters and digits: attempts at something else have other
            results.
    """

    def __init__(self, checkpoint: Checkpoint, epoch: int, task: str, run: str) -> None:
        self._files = checkpoint.results().below(_directory(epoch))
        self._prefix = f"{task}.{run}."

    def find(self) -> bytes | None:
        """Return the result of an earlier attempt, None before the first.

        Raises TaskCorruptedError if it is damaged, or deleted and a vote is left.
        """
        names = self._names(0)
        return self._read(self._agree(min(digest for _, digest in names))) if names else None

    def write(self, result: bytes, before_rename: Callable[[], None]) -> bytes:
        """Write the result of an attempt; return the result that counts.

        It is that of another attempt if that one was faster. before_rename: called when the result exists under a
        temporary name. Raises TaskCorruptedError if the result that counts is damaged.
        """
        digest = digest_of(result)
        self._files.write_once(self._name(0, _PROPOSAL, digest), result, before_rename)
        agreed = self._agree(digest)
        return result if agreed == digest else self._read(agreed)

    def _agree(self, proposal: str) -> str:
        """Return the digest of the agreed result; `proposal` is that of a result in the log."""
        for turn in count():
            if turn:
                self._note(turn, _PROPOSAL, proposal)
            names = self._names(turn)
            proposals = _results(names, _PROPOSAL)
            vote = (_ONLY if proposals == {proposal} else _SEVERAL, proposal)
            if vote not in names:
                self._note(turn, *vote)
                names = self._names(turn)
            if not _results(names, _SEVERAL):
                break
            proposal = min(_results(names, _ONLY) or proposals)
        return proposal

    def _note(self, turn: int, kind: str, digest: str) -> None:
        self._files.write_once(self._name(turn, kind, digest), b"")

    def _names(self, turn: int) -> set[tuple[str, str]]:
        """Return kind and result of all files of a round."""
        prefix = f"{self._prefix}{turn}."
        names = [each.name.removeprefix(prefix) for each in self._files.find("") if each.name.startswith(prefix)]
        return {(kind, digest) for kind, _, digest in (name.partition(".") for name in names)}

    def _read(self, digest: str) -> bytes:
        path = self._name(0, _PROPOSAL, digest)
        data = self._files.read(path)
        if data is None or digest_of(data) != digest:
            why = "it was deleted while its epoch ran" if data is None else "it is torn or was changed"
            raise damaged(f"{self._files.uri}/{path}", why)
        return data

    def _name(self, turn: int, kind: str, digest: str) -> str:
        return f"{self._prefix}{turn}.{kind}.{digest}"


def delete_results(checkpoint: Checkpoint, epoch: int) -> None:
    """Delete the results of an epoch, if present."""
    checkpoint.results().delete_directory(_directory(epoch))


def delete_results_before(checkpoint: Checkpoint, epoch: int) -> None:
    """Delete the results of all epochs before `epoch`; lists a directory."""
    for each in checkpoint.results().find(""):
        if each.name.isdigit() and int(each.name) < epoch:
            delete_results(checkpoint, int(each.name))


def _results(names: set[tuple[str, str]], kind: str) -> set[str]:
    """Return the results of the files of a kind."""
    return {digest for each, digest in names if each == kind}


def _directory(epoch: int) -> str:
    return f"{epoch:012d}"
