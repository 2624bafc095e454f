"""The rollback of an instance to its last commit, after an error or a loss. Part of the core.

All tasks are closed without a commit. They are opened again from the last commit if the handler decides so.
"""

from __future__ import annotations

from penstock.config import StreamsConfig
from penstock.errors import LockError
from penstock.host.api import StreamThreadExceptionResponse
from penstock.host.supervision.restarts import Restarts, TaskTimeout
from penstock.host.threads import vocabulary as v
from penstock.host.threads.commit_cycle import CommitCycle
from penstock.host.threads.ending import Ending
from penstock.host.threads.phases import InstancePhase, Phase
from penstock.host.threads.task_life import TaskLife
from penstock.host.threads.task_manager import TaskManager
from penstock.plan.subtopology import TaskId

_MOST_FENCED_MS = 60_000
"""A second fencing of the producer within this time is no accident (ms)."""


class Rollback:
    """Decides about errors, and opens all tasks again.

    Args:
        config: of the application.
        tasks: the active tasks.
        phase: of the instance.
        life: opens and closes tasks.
        commit: the cycle of commits.
        ending: the end of the instance.
        do: receives the actions.
    """

    def __init__(
        self,
        config: StreamsConfig,
        tasks: TaskManager,
        phase: InstancePhase,
        life: TaskLife,
        commit: CommitCycle,
        ending: Ending,
        do: v.Do,
    ) -> None:
        self.error: BaseException | None = None
        """The first error without a decision."""
        self.retry_at: int | None = None
        """The time at which tasks are opened again (ms)."""
        self._application_id = config["application.id"]
        self._backoff_ms: int = config["penstock.restart.backoff.ms"]
        self._restarts = Restarts.of(config)
        self._timeout = TaskTimeout(config["task.timeout.ms"])
        self._fenced_at: int | None = None
        self._tasks, self._phase, self._do = tasks, phase, do
        self._life, self._commit, self._ending = life, commit, ending

    def begin(self, error: BaseException | None = None) -> None:
        """Close all tasks without a commit, and ask the handler about `error` if given."""
        if not self._phase.allows(Phase.DROPPING):
            return  # nothing runs, and the decision about an earlier error holds
        self.error = self.error or error
        self._commit.undo()
        self._phase.change(Phase.DROPPING)
        self.retry_at = None

    def take(self, event: v.ErrorEvent, now: int) -> None:
        """Continue after an error, or after the decision about one."""
        match event:
            case v.Failed(error, task):
                self.failed(error, task, now)
            case v.StandbysFailed(error):
                self._life.standbys.close()  # requested again, regardless of the error
                self.failed(error, None, now)
            case v.TransactionLost(error, is_fenced):
                self._transaction_lost(error, is_fenced, now)
            case v.Decided(response):
                self._decided(response, now)

    def failed(self, error: BaseException, id: TaskId | None, now: int) -> None:
        """Handle an error of a task, or of all tasks."""
        if id is not None and self._life.failed(id, error, now):
            return
        if self._phase.current is Phase.ENDING:
            self.error = self.error or error
        elif self._phase.current is Phase.WAITING:
            pass  # all tasks are opened again anyway
        elif id is not None or self._phase.current is not Phase.DROPPING:
            self.begin(error)

    def _transaction_lost(self, error: Exception, is_fenced: bool, now: int) -> None:
        """Begin again from the last commit; fail if another producer with this id continues."""
        if not is_fenced or self._fenced_at is None or now - self._fenced_at > _MOST_FENCED_MS:
            self._fenced_at = now if is_fenced else self._fenced_at
            self.begin()
            return
        twice = LockError(
            f"Two instances of {self._application_id} write with the same transactional id: they have copies of one "
            "state directory. Give one of them an empty state.dir."
        )
        twice.__cause__ = error
        self.begin(twice)

    def go_on(self, now: int) -> None:
        """Close the running tasks once all are idle, then ask the handler or reopen."""
        if not self._tasks.any_busy():
            self._life.close_running(now)
        if self._tasks.any_busy():
            return
        # after this, all sent records are before the ends that restores read up to, or are never read
        self._do(v.Abort())
        self._life.give_up_aside()
        if self._ending.is_requested:
            self._ending.begin()
        elif self.error is None:
            self._phase.change(Phase.RUNNING)
        elif not self._life.retries.have_timed_out and self._timeout.allows(self.error, now):
            self._do(v.TellRetry(self.error))
            self._open_again(now + self._backoff_ms)
        else:
            self._phase.change(Phase.ASKING)
            self._do(v.Ask(self.error))

    def _decided(self, response: StreamThreadExceptionResponse, now: int) -> None:
        """Follow the answer of the handler of uncaught exceptions."""
        replaces = response is StreamThreadExceptionResponse.REPLACE_THREAD
        wait = self._restarts.next_wait_ms(self._commit.commits) if replaces else None
        if response is StreamThreadExceptionResponse.SHUTDOWN_APPLICATION:
            self._ending.tell_group(now)
        elif wait is None:
            self._ending.begin()
        else:
            self._open_again(now + wait)

    def _open_again(self, when: int) -> None:
        """Open all tasks again at `when` (ms)."""
        self.error, self.retry_at = None, when
        self._life.retries.begin_again()
        self._life.standbys.close()  # one of them may have failed
        self._phase.change(Phase.WAITING)

    def wait(self, now: int) -> None:
        """Run again after the wait, or at once if the end is requested."""
        if self._ending.is_requested or (self.retry_at is not None and now >= self.retry_at):
            self.retry_at = None
            self._phase.change(Phase.RUNNING)

    def committed(self) -> None:
        """Restart `task.timeout.ms`: a commit had changes of tasks."""
        self._timeout.succeeded()
