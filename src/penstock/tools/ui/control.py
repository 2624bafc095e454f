"""Actions on an application over HTTP, protected by a token.

Only the terminal of its program shows the token. The token is in the request itself and in no cookie, so a page of
another site cannot send it (CSRF).
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

from penstock.application.life import ApplicationLife
from penstock.application.running_topology import RunningTopology
from penstock.application.tap import Tap
from penstock.background import in_background
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.exception_handlers import DEAD_LETTER_QUEUE_TOPIC
from penstock.extras import load
from penstock.host.api import State
from penstock.tools.transfers.redrive import RedriveOptions, redrive
from penstock_broker.common.clock import SystemClock, elapsed_milliseconds
from penstock_broker.common.log_limits import limit_rate

_log = logging.getLogger(__name__)
_refusals = logging.getLogger(f"{__name__}.refusals")
limit_rate(_refusals)  # anyone can ask

Outcome = dict[str, Any]
"""The result of an action, as plain data."""

_WHERE_TASKS_RUN: Final = frozenset(("pause", "resume", "stop", "tap", "untap"))
"""Actions that are impossible after the application has ended."""


class Target(NamedTuple):
    """The target of an action: a node and its named topology; None is the first."""

    node: str = ""
    topology: str | None = None


UNREAD_MS: Final = 10 * 60_000
"""How long a tap that was opened here stays open without a reader: taps cost time."""

NO_TARGET: Final = Target()
"""The target of actions on the whole application."""


class _OpenedTap:
    """A tap that was opened here, and the time (ms) of its last observed reading."""

    def __init__(self, tap: Tap, now_ms: int) -> None:
        self.tap = tap
        self._reads, self._read_ms = tap.reads, now_ms

    def close_unread(self, now_ms: int) -> None:
        """Close the tap if it was not read for UNREAD_MS."""
        if self.tap.reads != self._reads:
            self._reads, self._read_ms = self.tap.reads, now_ms
        elif now_ms - self._read_ms >= UNREAD_MS:
            self.tap.close()


class RefusedActionError(StreamsError):
    """An action is refused.

    Args:
        status: the status of HTTP.
        text: the message.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Control:
    """Performs actions for requests with the token of an application.

    Args:
        application: the application.
        config: its configuration; it decides which actions are available.
        elapsed_ms: a monotonic clock.
    """

    def __init__(
        self,
        application: ApplicationLife[Any],
        config: StreamsConfig,
        elapsed_ms: Callable[[], int] = elapsed_milliseconds,
    ) -> None:
        self.token = secrets.token_urlsafe(32)
        """The token that a request must contain; generated here."""
        self._application = application
        self._application_id: str = config.required("application.id")
        self._config = config
        self._elapsed_ms = elapsed_ms
        self._slow = threading.Lock()
        self._taps: list[_OpenedTap] = []
        self._calls: dict[str, Callable[[], Outcome | None]] = {
            "pause": application.pause,
            "resume": application.resume,
            "stop": self._stop,
        }
        self._calls_for_nodes: dict[str, Callable[[RunningTopology, str], Outcome]] = {
            "tap": self._tap,
            "untap": self._untap,
        }
        if config["penstock.ui.savepoint.dir"] is not None and config["penstock.host"] == "spark":
            self._calls["savepoint"] = self._take_savepoint
        if config[DEAD_LETTER_QUEUE_TOPIC] is not None:
            self._calls["redrive"] = self._redrive

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions available for the application."""
        return (*self._calls, *self._calls_for_nodes)

    def act(self, action: str, token: str, asked_by: str, target: Target = NO_TARGET) -> Outcome:
        """Perform an action, log it, and return its result; a stop continues after the return.

        Args:
            action: name of the action.
            token: the token in the request.
            asked_by: the address of the client.
            target: of actions on a node.

        Raises:
            RefusedActionError: the token is wrong, there is no such action or node, the application has ended, or the
                action fails.
        """
        if not hmac.compare_digest(token.encode(), self.token.encode()):
            _refusals.warning("%s: %.100r requested by %s with a wrong token.", self._application_id, action, asked_by)
            raise RefusedActionError(
                403, "The token is wrong: the application wrote the right one to the terminal when it started."
            )
        if action not in self.actions:
            expected = ", ".join(self.actions)
            raise RefusedActionError(404, f"There is no action {action!r:.100}: expected one of {expected}.")
        state = self._application.state()
        if action in _WHERE_TASKS_RUN and state not in (State.RUNNING, State.REBALANCING):
            raise RefusedActionError(409, f"Cannot {action} {self._application_id}: its state is {state.value}.")
        call, what = self._calls.get(action), action
        if call is None:
            call, what = self._on_node(action, target), f"{action} of {target.node}"
        _log.warning("%s: %.200s requested by %s.", self._application_id, what, asked_by)
        try:
            return call() or {}
        except RefusedActionError:
            raise
        except (StreamsError, OSError, RuntimeError, ValueError) as error:
            _log.warning("%s: %.200s failed: %s", self._application_id, what, error)
            raise RefusedActionError(503, f"{action} of {self._application_id} failed: {error}") from error

    def _on_node(self, action: str, target: Target) -> Callable[[], Outcome]:
        """Return the call for an action on a node.

        Raises RefusedActionError if there is no such node.
        """
        topologies = self._application.running_topologies()
        topology = topologies.get(next(iter(topologies), "") if target.topology is None else target.topology)
        parts = () if topology is None else topology.describe().subtopologies
        if topology is None or target.node not in [each.name for part in parts for each in part.nodes]:
            raise RefusedActionError(404, f"Cannot {action}: no sub-topology has a node {target.node!r:.200}.")
        return partial(self._calls_for_nodes[action], topology, target.node)

    def _tap(self, topology: RunningTopology, node: str) -> Outcome:
        """Keep the last records that reach a node.

        A tap that the program has opened stays unchanged.
        """
        if topology.tapped(node) is None:
            self._taps.append(_OpenedTap(topology.tap(node), self._elapsed_ms()))
        return {"node": node}

    def close_unread_taps(self) -> None:
        """Close the taps opened here without a reader for UNREAD_MS.

        Called every few seconds.
        """
        for opened in list(self._taps):
            opened.close_unread(self._elapsed_ms())
            if not opened.tap.is_open:
                self._taps.remove(opened)

    def _untap(self, topology: RunningTopology, node: str) -> Outcome:
        topology.untap(node)
        return {"node": node}

    def _take_savepoint(self) -> Outcome:
        """Copy the state of the last commit to a new directory."""
        with self._alone("savepoint"):
            name = f"{self._application_id}-{SystemClock().milliseconds()}"
            directory = f"{str(self._config['penstock.ui.savepoint.dir']).rstrip('/')}/{name}"
            taken = load("penstock.savepoints", "The action savepoint").take(self._config, directory)
            return {"savepoint": taken.location, "commit": taken.epoch, "bytes": taken.bytes}

    def _redrive(self) -> Outcome:
        """Write dead letters that were not redriven back; skip other records."""
        with self._alone("redrive"):
            topic = str(self._config[DEAD_LETTER_QUEUE_TOPIC])
            done = redrive(self._config, topic, RedriveOptions(skip_invalid=True))
            return {"dead_letter_topic": topic, "redriven": done.records, "invalid": done.invalid}

    @contextmanager
    def _alone(self, action: str) -> Iterator[None]:
        """Refuse the action while another long one runs."""
        if not self._slow.acquire(blocking=False):
            raise RefusedActionError(409, f"Cannot {action}: another savepoint or redrive runs. Ask again later.")
        try:
            yield
        finally:
            self._slow.release()

    def _stop(self) -> None:
        in_background("penstock-ui-stop", self._close)  # the server that answers this request is closed, too

    def _close(self) -> None:
        try:
            self._application.close()
        except Exception:
            _log.exception("%s could not be stopped.", self._application_id)
