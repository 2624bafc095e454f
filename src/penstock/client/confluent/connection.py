"""The base of all clients over confluent-kafka: creation, retries with a timeout, and readable errors.

Rules: every wait has a timeout; librdkafka's background errors (a broker that is down, a refused login) are reported
    with the call that failed; errors never contain values of settings, because these may be secrets.
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
    """Return the facility of a log line of librdkafka, such as FAIL for connection errors."""
    return line.args[0] if isinstance(line.args, tuple) and line.args else line.msg


_log = limit_rate(logging.getLogger("penstock.client.librdkafka"), up_to=logging.ERROR, kind=_facility)
_log.addHandler(
    logging.NullHandler()
)  # librdkafka's lines are for users with logging set up; the errors contain the essentials

_log.addFilter(lambda line: "enable.gapless.guarantee" not in line.getMessage())  # warns of an intended setting

_FLUSH_SECONDS = 0.1

RETRY_SECONDS = 0.05
"""Pause (s) between two attempts at the same call."""

_NO_LOGIN = frozenset((Code._AUTHENTICATION, Code._SSL, Code.SASL_AUTHENTICATION_FAILED))
_NO_LOGIN_TEXTS = ("SSL handshake failed", "SSL routines")
"""Texts in librdkafka's connection errors if client or broker rejects the other over TLS."""

_UNREACHABLE = _NO_LOGIN | {Code._TIMED_OUT, Code._TRANSPORT, Code._ALL_BROKERS_DOWN, Code._RESOLVE}


_STATISTICS_INTERVAL = "statistics.interval.ms"

_PASSING = frozenset(
    (
        Code._TRANSPORT,
        Code._ALL_BROKERS_DOWN,
        Code._DESTROY_BROKER,  # a bootstrap.servers entry, once the brokers are known by their own names
        Code._TIMED_OUT,
        Code._TIMED_OUT_QUEUE,
        Code._MSG_TIMED_OUT,  # no broker accepted the record in time, e.g. with too few in-sync replicas
        Code._WAIT_COORD,
        Code._WAIT_CACHE,
        Code._RETRY,
        Code.LEADER_NOT_AVAILABLE,
        Code.NOT_LEADER_FOR_PARTITION,
        Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH,  # this client knows of a newer leader than the broker
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
"""Codes of retriable errors; librdkafka itself marks them only in transactions (Kafka class: RetriableException)."""

_OUT_OF_SEQUENCE = frozenset((Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.UNKNOWN_PRODUCER_ID))
"""Codes for brokers that have lost records of a producer. It cannot go on, but another one writes the records again."""

_DAMAGED = frozenset((Code._BAD_MSG, Code._BAD_COMPRESSION, Code._NOT_IMPLEMENTED))
"""Codes for a batch with a wrong checksum, or with an unknown format or compression."""

UNKNOWN_TOPIC = frozenset((Code.UNKNOWN_TOPIC_OR_PART, Code._UNKNOWN_TOPIC, Code._UNKNOWN_PARTITION, Code._NOENT))
"""Codes for a missing topic or partition."""


class Background:
    """librdkafka's background reports.

    A client refers to it, but it has no reference to a client: a reference cycle would keep a released client, with its
    threads and sockets, until the garbage collector runs.
    """

    def __init__(self) -> None:
        self.noticed: Code | None = None
        """The last error reported."""
        self.throttled_until = 0.0
        """End of the brokers' throttling of this client (s, monotonic clock), as last reported."""

    def notice(self, error: Code) -> None:
        """Keep an error, unless it only reports the lost connection after its cause."""
        if self.noticed is None or _tells_more(error, self.noticed):
            self.noticed = error
        _log.debug("%s", error.str())

    def throttle(self, event: ThrottleEvent) -> None:
        """Record that a broker throttles this client, which is above its quota."""
        self.throttled_until = max(self.throttled_until, time.monotonic() + float(event.throttle_time))

    def take_event(self, poll: Callable[[float], Message | None], seconds: float) -> None:
        """Poll a consumer, and keep the error that it returns as an event."""
        event = poll(seconds)
        error = None if event is None else event.error()
        if error is not None:
            self.notice(error)


class ClientConnection:
    """The base of all clients: creates them, and maps librdkafka's errors to Penstock's.

    Args:
        settings: the result of `client_settings`.
        timeout_ms: the timeout (ms) of one call.
    """

    def __init__(self, settings: Mapping[str, Any], timeout_ms: int) -> None:
        self._reported = Background()
        self.settings = {**settings, "error_cb": self._reported.notice, "logger": _log}
        self.settings["throttle_cb"] = self._reported.throttle
        if str(settings.get(_STATISTICS_INTERVAL, 0)) != "0":
            role = str(settings.get("client.id", "")).rpartition("-")[2]
            self.settings.setdefault("stats_cb", partial(STATISTICS.report, role))
        self._failures = Failures(settings)
        self.servers = self._failures.servers
        self.timeout_ms = timeout_ms
        self._asked = time.monotonic()
        self.serve: Callable[[float], object] = nothing_to_serve
        """Serves queued reports for up to that many seconds. Set by clients that do not serve them themselves."""

    @property
    def timeout(self) -> float:
        """The timeout of one call in seconds, for confluent-kafka."""
        return self.timeout_ms / 1000

    @property
    def noticed(self) -> Code | None:
        """The last error that librdkafka reported in the background."""
        return self._reported.noticed

    @property
    def throttled_until(self) -> float:
        """End of the throttling of this client (s, monotonic clock), which is above its quota."""
        return self._reported.throttled_until

    def asks(self) -> None:
        """Note that a wait for brokers begins, whose time is in the error if they do not answer."""
        self._asked = time.monotonic()

    def answered(self) -> None:
        """Clear the reported error: brokers have answered since."""
        self._reported.noticed = None
        self.asks()

    def serve_events_of(self, consumer: Consumer) -> None:
        """Serve the events of `consumer` from now on by polling it."""
        self.serve = partial(self._reported.take_event, consumer.poll)

    def take_reports(self) -> None:
        """Serve librdkafka's queued reports."""
        with suppress(KafkaException):  # a client with a fatal error raises it here, and from the call that failed
            apart(partial(self.serve, 0))

    def is_refused(self) -> bool:
        """Return whether the login is refused for good; with OAUTHBEARER, another token may follow."""
        self.take_reports()
        return self.noticed is not None and is_no_login(self.noticed) and self._failures.mechanism != "OAUTHBEARER"

    def _background(self) -> str | None:
        return None if self.noticed is None else str(self.noticed.str())

    def make(self, client: Callable[[dict[str, Any]], C]) -> C:
        """Create a client from the settings; raises ConfigError naming the key that librdkafka refuses."""
        try:
            return client(self.settings)
        except KafkaException as error:
            reason = error.args[0].str().rstrip(".")
            key = next((key for key in sorted(self.settings, key=len, reverse=True) if key in reason), None)
            if error.args[0].code() != Code._INVALID_ARG or key is None:
                raise KafkaError(f"Cannot create a client for bootstrap.servers={self.servers}: {reason}.") from error
            # The reason may contain a value, which may be a secret: the message omits it, and the error is not chained.
            if "No such" in reason:
                raise unknown_key(key, key) from None
            raise ConfigError(
                f"Invalid configuration {key}: the Kafka client, librdkafka, refuses its value; "
                "its CONFIGURATION.md lists keys and values."
            ) from None

    def fail(self, error: Code, doing: str, *needs: Right) -> NoReturn:
        """Raise the StreamsError for librdkafka's error in `doing`. needs: the permissions for it."""
        error = self._cause(error)
        code, reason = error.code(), error.str().rstrip(".")
        if code in _UNREACHABLE:
            self.take_reports()
            if self.noticed is not None and self.noticed.code() in FORBIDDEN:
                self._refuse(self.noticed.code(), self.noticed, doing, *needs)
            why = next((each for each in (error, self.noticed) if each is not None and is_no_login(each)), None)
            if why is not None:
                raise self._failures.login(doing, str(why.str()).rstrip("."))
            raise self._failures.silence(doing, self._background() or reason, time.monotonic() - self._asked)
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

    def _cause(self, error: Code) -> Code:
        """Return the cause of a fatal error: later calls report only that there was one; a poll raises it, once."""
        try:
            if error.code() == Code._FATAL:
                apart(partial(self.serve, 0))
        except KafkaException as raised:
            cause: Code = raised.args[0]
            return cause
        return error

    def _refuse(self, code: int, error: Code, doing: str, *needs: Right) -> NoReturn:
        reason = str(error.str()).rstrip(".")
        is_passing = passing(error) or code in _OUT_OF_SEQUENCE
        raise self._failures.answer(code, reason, doing, *needs, is_passing=is_passing)

    def call(self, doing: str, action: Callable[[], T], *needs: Right) -> T:
        """Return the result of `action`, retrying within the timeout while its errors are retriable."""
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
    """Return whether a permission is missing, so that a retry would not help."""
    return code.code() in FORBIDDEN


def _tells_more(error: Code, than: Code) -> bool:
    if error.code() == Code._ALL_BROKERS_DOWN:
        return False
    return is_no_login(error) or not (is_no_login(than) or is_forbidden(than))


def drained(producer: Producer, seconds: float, has_failed: Callable[[], bool] = lambda: False) -> int:
    """Wait up to `seconds` for answers to all records; return the number of unanswered ones.

    The wait ends early if `has_failed` finds the report of a record that brokers did not accept: in a transaction,
    librdkafka does not send the records after it, and reports nothing about them before the abort. A fatal error is
    raised as KafkaException. That requires short steps: when `Producer.flush` waits longer than 200 ms, it checks for
    signals with the error pending, and raises the error itself, which is not an exception.
    """
    deadline = time.monotonic() + seconds
    while len(producer) and not has_failed() and (left := deadline - time.monotonic()) > 0:
        producer.flush(min(left, _FLUSH_SECONDS))
    return len(producer)


def apart(call: Callable[[], T]) -> T:
    """Run a client's call in a thread of its own, from an exception handler.

    If it failed in this thread, confluent-kafka would keep the exception being handled forever, and with its frames the
    client with its sockets and threads.
    """
    return in_background("penstock-client", call).result()


def nothing_to_serve(seconds: float) -> None:
    """Do nothing: a consumer serves its reports in polls."""


def passing(code: Code) -> bool:
    """Return whether an error is retriable: the same call may succeed a moment later."""
    return bool(code.retriable()) or code.code() in _PASSING


def is_silence(error: KafkaException | TimeoutError) -> bool:
    """Return whether an error means that no answer came.

    After a broker went away, librdkafka may keep failing for minutes, while a new client finds another broker
    immediately.
    """
    return isinstance(error, TimeoutError) or error.args[0].code() in _UNREACHABLE
