"""The session that a host runs in: the user's own, unchanged, or one that Penstock creates.

All hosts of a program without a user's session share the one created for the first host, and the last host to close
stops it. Each host discards a session whose JVM is gone; the next host that opens a session creates a new one.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.config import StreamsConfig
from penstock.host.spark import session
from penstock.host.spark.driver.session_errors import session_errors


class _Shared:
    """The session that Penstock created in this process, with the number of its users."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: SparkSession | None = None
        self._users = 0

    def is_made(self, other: SparkSession) -> bool:
        """Return whether `other` is the session that Penstock created, or uses its SparkContext."""
        with self._lock:
            made = self._made
            if made is None or session.is_connect(made) or session.is_connect(other):
                return other is made
            return other.sparkContext is made.sparkContext

    def join(self, config: StreamsConfig, directory: Path) -> SparkSession:
        """Become a user of the session, creating it if necessary; see `make_session`."""
        with self._lock:
            if self._made is None:
                remote = session.remote_of(config)
                if remote is None:
                    session.check_java()
                    self._made = session.make_session(config, directory)
                else:
                    self._made = session.make_connect_session(config, remote)
                self._users = 0
            self._users += 1
            return self._made

    def leave(self, own: SparkSession) -> None:
        """Stop using `own`; the last user stops it."""
        with self._lock:
            if self._made is not own:
                return
            self._users -= 1
            if self._users == 0:
                self._made = None
                with suppress(*session_errors()), warnings.catch_warnings():
                    warnings.simplefilter("ignore", RuntimeWarning)  # pyspark warns that the JVM is gone
                    session.stop_session(own)

    def forget_lost(self, own: SparkSession) -> None:
        """Make the next session start a new JVM, because that of `own` is gone."""
        with self._lock:
            if self._made is own:
                self._made = None
                session.forget_lost(own)


_shared = _Shared()


class SessionUse:
    """One host's use of a session.

    Args:
        config: of the application; configures a session that is created.
        directory: for the log of a JVM that is started.
    """

    def __init__(self, config: StreamsConfig, directory: Path) -> None:
        self._config = config
        self._directory = directory
        self._of_user: SparkSession | None = None
        self._own: SparkSession | None = None

    def take(self, given: SparkSession | None) -> None:
        """Use `given`, or else the active session of this thread if it is the user's."""
        found = given or SparkSession.getActiveSession()
        if found is not None and not _shared.is_made(found):
            self._of_user = found

    @property
    def existing(self) -> SparkSession | None:
        """The session in use; None before `open` if the user has no session."""
        return self._of_user or self._own

    def open(self) -> SparkSession:
        """Return the session in use.

        Without a user's session, join the one that other hosts share, or create it.

        Raises:
            StreamsError: a session must be created, and Java is missing.
        """
        if self._of_user is not None:
            return self._of_user
        if self._own is None:
            self._own = _shared.join(self._config, self._directory)
        return self._own

    def forget_lost(self) -> None:
        """Make `open` create a new session if the JVM of Penstock's session is gone.

        A user's session is kept.
        """
        if self._own is not None:
            _shared.forget_lost(self._own)
            self._own = None

    def close(self) -> None:
        """Stop using the session."""
        self._of_user = None
        if self._own is not None:
            _shared.leave(self._own)
            self._own = None
