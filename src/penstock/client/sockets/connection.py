"""One connection to a broker: framing, TLS, login, API versions, one request at a time.

cluster.py selects the broker and interprets responses. Rules:
- Every wait has a timeout. After a timeout or an unreadable response, the connection is closed: the next bytes would
  belong to an earlier request.
- A response is limited to `receive.message.max.bytes`, and its buffer grows with the bytes that arrive.
- A connection belongs to one thread at a time.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from penstock.client.failures import Failures
from penstock.client.sockets.sasl import Mechanism, mechanism
from penstock.client.sockets.tls import tls_context
from penstock.errors import AuthenticationError, ConfigError, KafkaError, UnsupportedVersionError
from penstock_broker.wire.codec import Message, is_flexible, request_encoder, response_decoder
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import Cursor, MalformedMessageError, Sink


class Api(NamedTuple):
    """An API of brokers, with the versions that this client supports."""

    name: str
    key: int
    oldest: int
    newest: int


API_VERSIONS: Final = Api("ApiVersions", 18, 0, 3)
SASL_HANDSHAKE: Final = Api("SaslHandshake", 17, 1, 1)
SASL_AUTHENTICATE: Final = Api("SaslAuthenticate", 36, 0, 2)

_SIZE: Final = struct.Struct(">i")
_HEADER: Final = struct.Struct(">hhi")
_TEXT: Final = struct.Struct(">h")
_CHUNK: Final = 64 * 1024
_MOST_ELEMENTS: Final = 5_000_000
_LARGEST_ANSWER: Final = 100_000_000
"""librdkafka's default of receive.message.max.bytes."""

_RENEWED_AT: Final = 0.8
"""Fraction of a session's lifetime after which the client reauthenticates on the same connection (KIP-368)."""

_PROTOCOLS: Final = {
    "PLAINTEXT": (False, False),
    "SSL": (True, False),
    "SASL_PLAINTEXT": (False, True),
    "SASL_SSL": (True, True),
}
"""By security.protocol: whether it has TLS, and a login."""


class ConnectionSettings:
    """Settings of all connections of a client.

    Args:
        settings: the settings of the client, under librdkafka's names.
        timeout_ms: the timeout (ms) of one request.

    Raises:
        ConfigError: a key has no counterpart here, or an invalid value.
    """

    def __init__(self, settings: Mapping[str, Any], timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.failures = Failures(settings)
        self.client_id = str(settings.get("client.id", "penstock"))
        protocol = self.failures.protocol
        if protocol not in _PROTOCOLS:
            raise ConfigError(f"Invalid configuration security.protocol: expected one of {', '.join(_PROTOCOLS)}.")
        has_tls, has_login = _PROTOCOLS[protocol]
        self.tls: ssl.SSLContext | None = tls_context(settings) if has_tls else None
        self.mechanism: Mechanism | None = mechanism(settings, timeout_ms) if has_login else None
        self.largest_answer = int(settings.get("receive.message.max.bytes", _LARGEST_ANSWER))


class BrokerConnection:
    """A connection to one broker; a context manager that closes it.

    Args:
        host: the host of the broker.
        port: the port of the broker.
        settings: the settings of the connection.
        doing: the purpose of the connection, for errors.

    Raises:
        BrokerNotFoundError: the broker is unreachable.
        AuthenticationError: one side rejects the other.
    """

    def __init__(self, host: str, port: int, settings: ConnectionSettings, doing: str) -> None:
        self._address = f"{host}:{port}"
        self._settings = settings
        self._failures = settings.failures
        self._correlation_id = 0
        self._waiting: tuple[Api, int] | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._renew_at = float("inf")
        deadline = self._deadline(settings.timeout_ms)
        self._socket = self._connect(host, port, deadline, doing)
        try:
            self._learn_versions(deadline, doing)
            self._log_in(deadline, doing)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed."""
        return self._socket.fileno() < 0

    @property
    def has_pending_bytes(self) -> bool:
        """Whether TLS has decrypted bytes that a wait for the socket would miss."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def fileno(self) -> int:
        """Return the file descriptor of the socket, for `select`."""
        return self._socket.fileno()

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._socket.close()

    def version(self, api: Api) -> int:
        """Return the newest version of an API that both sides support.

        Raises:
            UnsupportedVersionError: they have no version in common.
        """
        oldest, newest = self._versions.get(api.key, (0, -1))
        chosen = min(newest, api.newest)
        if chosen < max(oldest, api.oldest):
            has = "does not have the API" if newest < 0 else f"has versions {oldest} to {newest} of"
            raise UnsupportedVersionError(
                f"The broker at {self._address} {has} {api.name}; this client needs a version from {api.oldest} to "
                f"{api.newest}."
            )
        return chosen

    def call(self, api: Api, body: Message, doing: str, timeout_ms: int | None = None) -> Message:
        """Send a request and return its response.

        Args:
            api: the API.
            body: the fields of the request.
            doing: the purpose of the request, for errors.
            timeout_ms: the timeout (ms) of the response, None for that of the client.

        Raises:
            BrokerNotFoundError: no response arrived in time, or the connection broke.
            UnsupportedVersionError: the broker does not have the API.
        """
        self.send(api, body, doing)
        return self.receive(doing, timeout_ms)

    def send(self, api: Api, body: Message, doing: str) -> None:
        """Send a request; `receive` returns its response. Arguments and errors are those of `call`."""
        deadline = self._deadline(self._settings.timeout_ms)
        if time.monotonic() >= self._renew_at:
            self._log_in(deadline, doing)
        self._send(api, self.version(api), body, deadline, doing)

    def receive(self, doing: str, timeout_ms: int | None = None) -> Message:
        """Return the response to the last request. Arguments and errors are those of `call`."""
        return self._receive(self._deadline(self._settings.timeout_ms if timeout_ms is None else timeout_ms), doing)

    def _deadline(self, timeout_ms: int) -> float:
        """Begin to wait, and return the end of the wait."""
        self._asked = time.monotonic()
        return self._asked + timeout_ms / 1000

    def _connect(self, host: str, port: int, deadline: float, doing: str) -> socket.socket:
        try:
            plain = socket.create_connection((host, port), timeout=self._left(deadline))
        except OSError as error:
            raise self._silence(doing, error) from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._settings.tls is None:
                return plain
            plain.settimeout(self._left(deadline))
            return self._settings.tls.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            if isinstance(error, ssl.SSLError):
                raise self._failures.login(doing, self._reason(error)) from error
            raise self._silence(doing, error) from error

    def _learn_versions(self, deadline: float, doing: str) -> None:
        software = {"client_software_name": "penstock", "client_software_version": "1"}
        answer: Message = {"error_code": ErrorCode.unsupported_version}
        for version in (API_VERSIONS.newest, API_VERSIONS.oldest):
            self._send(API_VERSIONS, version, software, deadline, doing)
            answer = self._receive(deadline, doing)
            if answer["error_code"] != ErrorCode.unsupported_version:
                break
        if answer["error_code"] != ErrorCode.none:
            self._fail(answer["error_code"], "the broker does not tell its versions of APIs", doing)
        self._versions = {one["api_key"]: (one["min_version"], one["max_version"]) for one in answer["api_keys"]}

    def _log_in(self, deadline: float, doing: str) -> None:
        """Log in, or reauthenticate on a connection whose session is about to expire (KIP-368)."""
        chosen = self._settings.mechanism
        if chosen is None:
            return
        self._send(SASL_HANDSHAKE, self.version(SASL_HANDSHAKE), {"mechanism": chosen.name}, deadline, doing)
        answer = self._receive(deadline, doing)
        if answer["error_code"] != ErrorCode.none:
            has = ", ".join(answer["mechanisms"])
            raise self._failures.login(doing, f"the broker at {self._address} does not have {chosen.name}, but {has}")
        exchange = chosen.begin()
        version = self.version(SASL_AUTHENTICATE)
        try:
            message = next(exchange)
            while True:
                self._send(SASL_AUTHENTICATE, version, {"auth_bytes": message}, deadline, doing)
                answer = self._receive(deadline, doing)
                if answer["error_code"] != ErrorCode.none:
                    raise AuthenticationError(answer["error_message"] or error_name(answer["error_code"]))
                message = exchange.send(bytes(answer["auth_bytes"]))
        except AuthenticationError as error:
            self.close()
            raise self._failures.login(doing, str(error).rstrip(".")) from None
        except StopIteration:
            life_ms: int = answer.get("session_lifetime", 0)
            self._renew_at = time.monotonic() + life_ms / 1000 * _RENEWED_AT if life_ms else float("inf")

    def _send(self, api: Api, version: int, body: Message, deadline: float, doing: str) -> None:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        sink = Sink()
        client_id = self._settings.client_id.encode()
        sink.write(_HEADER.pack(api.key, version, self._correlation_id))
        sink.number(_TEXT, len(client_id))
        sink.write(client_id)
        if is_flexible(api.key, version):
            sink.varint(0)
        request_encoder(api.key, version)(sink, body)
        frame = b"".join((_SIZE.pack(sink.size), *sink.chunks))
        try:
            self._socket.settimeout(self._left(deadline))
            self._socket.sendall(frame)
        except OSError as error:
            raise self._broken(error, doing) from error
        self._waiting = api, version

    def _receive(self, deadline: float, doing: str) -> Message:
        if self._waiting is None:
            raise RuntimeError(f"no request to {self._address} waits for an answer ({doing})")
        api, version = self._waiting
        self._waiting = None
        try:
            size: int = _SIZE.unpack(self._read(_SIZE.size, deadline))[0]
            if not _SIZE.size <= size <= self._settings.largest_answer:
                largest = self._settings.largest_answer
                raise MalformedMessageError(f"an answer of {size} bytes; receive.message.max.bytes is {largest}")
            return self._decoded(api, version, self._read(size, deadline))
        except (OSError, MalformedMessageError) as error:
            raise self._broken(error, doing) from error

    def _decoded(self, api: Api, version: int, content: bytearray) -> Message:
        cursor = Cursor(memoryview(content), _MOST_ELEMENTS)
        if cursor.number(_SIZE) != self._correlation_id:
            raise MalformedMessageError("an answer to another request")
        if api is API_VERSIONS:
            # A broker that does not have the version responds with the oldest one.
            if _TEXT.unpack_from(content, _SIZE.size)[0] == ErrorCode.unsupported_version:
                version = API_VERSIONS.oldest
        elif is_flexible(api.key, version):
            cursor.skip_tagged_fields()
        answer: Message = response_decoder(api.key, version)(cursor)
        return answer

    def _read(self, size: int, deadline: float) -> bytearray:
        content = bytearray()
        while len(content) < size:
            self._socket.settimeout(self._left(deadline))
            chunk = self._socket.recv(min(size - len(content), _CHUNK))
            if not chunk:
                raise ConnectionResetError("it closed the connection")
            content += chunk
        return content

    def _left(self, deadline: float) -> float:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer came in time")
        return left

    def _broken(self, error: Exception, doing: str) -> KafkaError:
        """Close the connection and return the error for the exception that broke it."""
        self.close()
        # A broker that rejects the client's certificate closes the connection after the handshake.
        if isinstance(error, ssl.SSLError):
            return self._failures.login(doing, self._reason(error))
        return self._silence(doing, error)

    def _silence(self, doing: str, error: Exception) -> KafkaError:
        return self._failures.silence(doing, self._reason(error), time.monotonic() - self._asked)

    def _fail(self, code: int, reason: str, doing: str) -> None:
        raise self._failures.answer(code, f"{reason} ({error_name(code)})", doing)

    def _reason(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            why = "no answer came in time"
        elif isinstance(error, ssl.SSLCertVerificationError):
            why = f"SSL handshake failed: {error.verify_message}"
        elif isinstance(error, ssl.SSLError):
            why = f"SSL handshake failed: {error.reason or error}"
        elif isinstance(error, OSError):
            why = error.strerror or str(error)
        else:
            why = f"its answer cannot be read: {error}"
        return f"{self._address}: {why}"


def error_name(code: int) -> str:
    """Return Kafka's name of an error code, or its number if a newer broker has sent it."""
    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"
