"""What all clients over confluent-kafka share: how they are made, bounded retries, and errors that a person can read.

Rules: every wait has a bound; what librdkafka reports in the background (a broker that is down, a refused login) is
    kept and reported with the call that failed; values of settings are never reported, because they may be secrets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn, TypeVar

from confluent_kafka import Consumer, KafkaException, Message, Producer, ThrottleEvent
from confluent_kafka import KafkaError as Code

from penstock.background import in_background
from penstock.client.confluent.statistics import STATISTICS
from penstock.client.failures import (
    CORRUPT_MESSAGE,
    FORBIDDEN,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_TOPIC_OR_PARTITION,
    Failures,
    Right,
)
from penstock.client.keys import unknown_key
from penstock.errors import ConfigError, KafkaError, RetriableError
from penstock_broker.common.log_limits import limit_rate

T = TypeVar("T")
C = TypeVar("C")


def _facility(line: logging.LogRecord) -> object:
    """Return what a line of librdkafka is about: FAIL, for one, of each attempt to connect."""
    return line.args[0] if isinstance(line.args, tuple) and line.args else line.msg


_log = limit_rate(logging.getLogger("penstock.client.librdkafka"), up_to=logging.ERROR, kind=_facility)
_log.addHandler(
    logging.NullHandler()
)  # librdkafka's lines are for those who set up logging; the errors contain what matters

_log.addFilter(lambda line: "enable.gapless.guarantee" not in line.getMessage())  # a warning of what is on purpose

_FLUSH_SECONDS = 0.1

RETRY_SECONDS = 0.05
"""Pause between two attempts at the same call."""

_NO_LOGIN = frozenset((Code._AUTHENTICATION, Code._SSL, Code.SASL_AUTHENTICATION_FAILED))
_NO_LOGIN_TEXTS = ("SSL handshake failed", "SSL routines")
"""The text of librdkafka, with the code of a broken connection, if one side does not accept the other over TLS."""

_UNREACHABLE = _NO_LOGIN | {Code._TIMED_OUT, Code._TRANSPORT, Code._ALL_BROKERS_DOWN, Code._RESOLVE}


_STATISTICS_INTERVAL = "statistics.interval.ms"

_PASSING = frozenset(
    (
        Code._TRANSPORT,
        Code._ALL_BROKERS_DOWN,
        Code._DESTROY_BROKER,  # the one that bootstrap.servers named, once the brokers are known by their own names
        Code._TIMED_OUT,
        Code._TIMED_OUT_QUEUE,
        Code._MSG_TIMED_OUT,  # a record that no broker accepted in time, such as with too few in-sync replicas
        Code._WAIT_COORD,
        Code._WAIT_CACHE,
        Code._RETRY,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_FOR_PARTITION,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,  # the broker does not know the leader yet that this client knows
        Code.REPLICA_NOT_AVAILABLE,
        Code.BROKER_NOT_AVAILABLE,
        Code.STALE_BROKER_EPOCH,
        Code.OFFSET_NOT_AVAILABLE,
        Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        Code.PREFERRED_LEADER_NOT_AVAILABLE,
        Code.KAFKA_STORAGE_ERROR,
        Code.NETWORK_EXCEPTION,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_CONTROLLER,
        Code.NOT_ENOUGH_REPLICAS,
        Code.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Code.COORDINATOR_NOT_AVAILABLE,
        Code.COORDINATOR_LOAD_IN_PROGRESS,
        Code.NOT_COORDINATOR,
        Code.UNSTABLE_OFFSET_COMMIT,
        Code.CONCURRENT_TRANSACTIONS,
        Code.FETCH_SESSION_ID_NOT_FOUND,
        Code.INVALID_FETCH_SESSION_EPOCH,
        Code.THROTTLING_QUOTA_EXCEEDED,
    )
)
"""Codes of requests that may succeed a moment later; librdkafka marks them itself only in transactions (Kafka class:
RetriableException)."""

_DAMAGED = frozenset((Code._BAD_MSG, Code._BAD_COMPRESSION, Code._NOT_IMPLEMENTED))
"""Codes for a batch of records with a wrong checksum, or with a format or a compression that is not known."""

UNKNOWN_TOPIC = frozenset((Code.UNKNOWN_TOPIC_OR_PART, Code._UNKNOWN_TOPIC, Code._UNKNOWN_PARTITION, Code._NOENT))
"""Codes for a missing topic or partition."""


class Background:
    """What librdkafka reports in the background.

    A client refers to it, and it refers to nobody: a reference cycle would keep a released client, with its threads and
    sockets, until the garbage collector runs.
    """

    def __init__(self) -> None:
        self.noticed: Code | None = None
        """What was last reported."""
        self.throttled_until = 0.0
        """Until when (s, by the monotonic clock) brokers make this client wait, as they last said."""

    def notice(self, error: Code) -> None:
        """Take a report, unless it only reports a missing connection after one that gave the reason."""
        if self.noticed is None or _tells_more(error, self.noticed):
            self.noticed = error
        _log.debug("%s", error.str())

    def throttle(self, event: ThrottleEvent) -> None:
        """Take that a broker makes this client wait, since it is above its quota."""
        self.throttled_until = max(self.throttled_until, time.monotonic() + float(event.throttle_time))

    def take_event(self, poll: Callable[[float], Message | None], seconds: float) -> None:
        """Take a report that a consumer returned from a poll."""
        event = poll(seconds)
        error = None if event is None else event.error()
        if error is not None:
            self.notice(error)


class ClientConnection:
    """What all clients share: how they are made, and how librdkafka's errors become Penstock's."""

    def __init__(self, settings: Mapping[str, Any], timeout_ms: int) -> None:
        """Take what `client_settings` gave and the bound (ms) of one call."""
        self._reported = Background()
        self.settings = {**settings, "error_cb": self._reported.notice, "logger": _log}
        self.settings["throttle_cb"] = self._reported.throttle
        if str(settings.get(_STATISTICS_INTERVAL, 0)) != "0":
            role = str(settings.get("client.id", "")).rpartition("-")[2]
            self.settings.setdefault("stats_cb", partial(STATISTICS.report, role))
        self._failures = Failures(settings, timeout_ms)
        self.servers = self._failures.servers
        self.timeout_ms = timeout_ms
        self.serve: Callable[[float], object] = nothing_to_serve
        """Takes waiting reports, for up to that many seconds; set by clients that do not take them themselves."""

    @property
    def timeout(self) -> float:
        """The bound of one call in seconds, as confluent-kafka wants it."""
        return self.timeout_ms / 1000

    @property
    def noticed(self) -> Code | None:
        """What librdkafka last reported in the background."""
        return self._reported.noticed

    @property
    def throttled_until(self) -> float:
        """Until when (s, by the monotonic clock) brokers make this client wait, since it is above its quota."""
        return self._reported.throttled_until

    def answered(self) -> None:
        """Forget what was reported before: brokers have answered since."""
        self._reported.noticed = None

    def serve_events_of(self, consumer: Consumer) -> None:
        """From now on, take the reports that `consumer` returns from polls."""
        self.serve = partial(self._reported.take_event, consumer.poll)

    def take_reports(self) -> None:
        """Take what librdkafka has to report."""
        with suppress(KafkaException):  # a client that cannot go on raises it here, and from the call that failed
            apart(partial(self.serve, 0))

    def is_refused(self) -> bool:
        """Return whether the login was refused, and is of no use any more; another token may be on its way."""
        self.take_reports()
        return self.noticed is not None and is_no_login(self.noticed) and self._failures.mechanism != "OAUTHBEARER"

    def _background(self) -> str | None:
        return None if self.noticed is None else str(self.noticed.str())

    def make(self, client: Callable[[dict[str, Any]], C]) -> C:
        """Make a client from the settings; raises ConfigError naming the key that librdkafka refuses."""
        try:
            return client(self.settings)
        except KafkaException as error:
            reason = error.args[0].str().rstrip(".")
            key = next((key for key in sorted(self.settings, key=len, reverse=True) if key in reason), None)
            if error.args[0].code() != Code._INVALID_ARG or key is None:
                raise KafkaError(f"Cannot create a client for bootstrap.servers={self.servers}: {reason}.") from error
            # The reason may repeat a value, and the value may be a secret: the message leaves it out, and the error is
            # not chained.
            if "No such" in reason:
                raise unknown_key(key, key) from None
            raise ConfigError(
                f"Invalid configuration {key}: the Kafka client, librdkafka, refuses its value; "
                "its CONFIGURATION.md lists keys and values."
            ) from None

    def fail(self, error: Code, doing: str, *needs: Right) -> NoReturn:
        """Raise the StreamsError for what librdkafka reported while `doing` something. needs: the rights for it."""
        code, reason = error.code(), error.str().rstrip(".")
        if code in _UNREACHABLE:
            self.take_reports()
            if self.noticed is not None and self.noticed.code() in FORBIDDEN:
                self._refuse(self.noticed.code(), self.noticed, doing, *needs)
            why = next((each for each in (error, self.noticed) if each is not None and is_no_login(each)), None)
            if why is not None:
                raise self._failures.login(doing, str(why.str()).rstrip("."))
            raise self._failures.silence(doing, self._background() or reason)
        if code in UNKNOWN_TOPIC:
            code = UNKNOWN_TOPIC_OR_PARTITION
        elif code == Code._AUTO_OFFSET_RESET:
            code = OFFSET_OUT_OF_RANGE
        elif code in _DAMAGED:
            code = CORRUPT_MESSAGE
        elif code == Code._MSG_TIMED_OUT:
            raise RetriableError(
                f"The brokers did not accept a record in time ({doing}) at bootstrap.servers={self.servers}. Check "
                "that every partition of the topic has a leader, and as many replicas in sync as its "
                "min.insync.replicas: `penstock topics describe` shows them."
            )
        self._refuse(code, error, doing, *needs)

    def _refuse(self, code: int, error: Code, doing: str, *needs: Right) -> NoReturn:
        reason = str(error.str()).rstrip(".")
        raise self._failures.answer(code, reason, doing, *needs, is_passing=passing(error))

    def call(self, doing: str, action: Callable[[], T], *needs: Right) -> T:
        """Return what `action` returns; it is tried again within the bound while the error is a passing one."""
        deadline = time.monotonic() + self.timeout
        self.answered()
        while True:
            try:
                return action()
            except KafkaException as error:
                code: Code = error.args[0]
                if not passing(code) or self.is_refused() or time.monotonic() >= deadline:
                    self.fail(code, doing, *needs)
                time.sleep(RETRY_SECONDS)
            except TimeoutError:
                if time.monotonic() < deadline and not self.is_refused():
                    continue
                self.fail(Code(Code._TIMED_OUT, "for an unknown reason"), doing, *needs)


def is_no_login(code: Code) -> bool:
    """Return whether brokers refuse a login, or the client refuses the brokers."""
    return code.code() in _NO_LOGIN or any(each in code.str() for each in _NO_LOGIN_TEXTS)


def is_forbidden(code: Code) -> bool:
    """Return whether a right is missing: to ask again would not help."""
    return code.code() in FORBIDDEN


def _tells_more(error: Code, than: Code) -> bool:
    if error.code() == Code._ALL_BROKERS_DOWN:
        return False
    return is_no_login(error) or not (is_no_login(than) or is_forbidden(than))


def drained(producer: Producer, seconds: float, has_failed: Callable[[], bool] = lambda: False) -> int:
    """Wait up to `seconds` until brokers have answered all records, and return for how many they have not.

    It waits no longer when `has_failed` finds the report of a record that brokers did not accept: in a transaction,
    librdkafka does not send the records behind it, and reports nothing of them before the abort.

    A fatal error is raised as KafkaException. That needs short steps: where `Producer.flush` waits longer than 200 ms,
    it looks for signals with the error pending, and raises the error itself, which is no exception.
    """
    deadline = time.monotonic() + seconds
    while len(producer) and not has_failed() and (left := deadline - time.monotonic()) > 0:
        producer.flush(min(left, _FLUSH_SECONDS))
    return len(producer)


def apart(call: Callable[[], T]) -> T:
    """Run a call of a client from the handler of an error, in a thread of its own. If it fails there, confluent-kafka
    keeps the error that is being handled for ever, and with its frames the client, whose sockets and threads stay."""
    return in_background("penstock-client", call).result()


def nothing_to_serve(seconds: float) -> None:
    """A consumer serves its reports while it is polled."""


def passing(code: Code) -> bool:
    """Return whether the same call may succeed a moment later."""
    return bool(code.retriable()) or code.code() in _PASSING


def is_silence(error: KafkaException | TimeoutError) -> bool:
    """Return whether an error means that no answer came. After a broker went away, librdkafka may keep failing for
    minutes, while a new client finds another broker immediately."""
    return isinstance(error, TimeoutError) or error.args[0].code() in _UNREACHABLE
