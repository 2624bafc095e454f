"""One client's connection: frames in, responses out, in the order of the requests.

Contains framing, headers and the flow of one socket. Not here: the meaning of requests (apis.py and the modules it
names).

Rules:
- One request at a time, as in Kafka: while an answer is pending, the socket is read until the next request begins, so
  that a lost client is noticed; while the client does not read, the broker does not read from it. So a client holds at
  most one frame and one response in memory.
- Each frame gets its own buffer, and records are passed on as views of it. The buffer grows with the data that has
  arrived, regardless of the announced length.
- A connection is closed after too long without a request. If there are too many connections, the longest idle one is
  closed, so that idle connections do not lock out clients. If too many answer bytes are unread, the connection that has
  not read for longest is closed; if incomplete requests take too much memory, the one whose request has not grown for
  longest.
- A client above its quota gets its answer at once, and its socket is not read for the throttle time in the answer.
- A malformed request closes the connection and is logged; it never stops the broker.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, cast

from penstock_broker.answers import LaterAnswer
from penstock_broker.apis import API_VERSIONS, PRODUCE, Api, api_versions_response
from penstock_broker.common.log_limits import limit_rate
from penstock_broker.config import BrokerConfig
from penstock_broker.errors import ConnectionClosingError
from penstock_broker.state import BrokerState, Request
from penstock_broker.wire.codec import Message, is_flexible, request_decoder, response_encoder
from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import INT16, Cursor, MalformedMessageError, OversizedMessageError, Sink

_SIZE: Final = struct.Struct(">i")
_SIZE_AND_KEY: Final = struct.Struct(">ih")
_HEADER: Final = struct.Struct(">hhi")
_RESPONSE_HEADER: Final = struct.Struct(">ii")

_INBOX_BYTES: Final = 16 * 1024
"""Bytes read at once before a frame's length is known; enough for most requests."""

_FIRST_BUFFER: Final = 64 * 1024
"""Initial buffer size of a frame, in bytes."""


_JOINED_BYTES: Final = 64 * 1024
"""Bytes of a response below which joining its parts is cheaper than writing each."""


class _Holders:
    """Connections that hold memory until their clients continue, longest waiting first.

    Args:
        most_bytes: maximum memory of all of them, in bytes.
        what: description of the memory and name of the limit, for messages.
    """

    def __init__(self, most_bytes: int, what: str) -> None:
        self._most_bytes = most_bytes
        self._what = what
        self._bytes: dict[Connection, int] = {}
        self._sum = 0

    def note(self, connection: Connection, size: int) -> None:
        """Record the memory held by a connection, closing the longest waiting ones above the limit.

        Args:
            connection: the connection.
            size: bytes that it holds.
        """
        self.forget(connection)
        self._bytes[connection] = size
        self._sum += size
        while self._sum > self._most_bytes:
            slowest = next(iter(self._bytes))
            _log.warning("%d bytes of %s: closed the connection that has waited longest", self._sum, self._what)
            self.forget(slowest)
            slowest.close()

    def forget(self, connection: Connection) -> None:
        """Record that a connection holds no more memory."""
        self._sum -= self._bytes.pop(connection, 0)


class _Call(NamedTuple):
    """A handled request: fields for its answer, its size, and its processing time (ms)."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    size: int
    busy_ms: float


_log = limit_rate(logging.getLogger(__name__))


class Connections:
    """The open connections, least recently used first.

    Args:
        config: the settings with the limits of number, idle time and memory.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._most = config.max_connections
        self._max_idle = config.connections_max_idle_ms / 1000
        self._used: dict[Connection, float] = {}
        self._is_closed = False
        self.unread = _Holders(config.max_unread_bytes, "answers are not read (max_unread_bytes)")
        """Clients with unread answers."""
        self.partial = _Holders(
            config.max_partial_request_bytes, "requests have not arrived completely (max_partial_request_bytes)"
        )
        """Clients with incomplete requests."""

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._used))

    def enter(self, connection: Connection) -> bool:
        """Add a connection, closing the longest idle one if there are too many.

        Return whether there is room and the broker is not shutting down.
        """
        if self._is_closed:
            return False
        if len(self._used) >= self._most:
            idle = next((each for each in self._used if each.is_idle), None)
            _log.warning("%d connections are open (max_connections): the one idle longest is closed", self._most)
            if idle is None:
                return False
            self.leave(idle)
            idle.close()
        self.note_use(connection)
        return True

    def close(self) -> None:
        """Close all connections, including accepted ones that have not entered yet.

        From Python 3.12 on, closing a server waits for each connection.
        """
        self._is_closed = True
        for connection in self:
            connection.close()

    def leave(self, connection: Connection) -> None:
        """Remove a closed connection."""
        self._used.pop(connection, None)
        self.unread.forget(connection)
        self.partial.forget(connection)

    def note_use(self, connection: Connection) -> None:
        """Record that a connection is in use now."""
        self._used.pop(connection, None)
        self._used[connection] = time.monotonic()

    async def close_idle(self) -> None:
        """Close connections that are idle for too long, until the task is cancelled."""
        while True:
            await asyncio.sleep(self._max_idle / 4)
            now = time.monotonic()
            for connection, used in tuple(self._used.items()):
                if now - used >= self._max_idle and connection.is_idle:
                    connection.close()


class Connection(asyncio.BufferedProtocol):
    """The server side of one connection.

    Args:
        state: the broker.
        connections: the open connections, which this one enters and leaves.
        apis: the supported APIs by key.
    """

    def __init__(self, state: BrokerState, connections: Connections, apis: Mapping[int, Api]) -> None:
        self._state = state
        self._apis = apis
        self._connections = connections
        self._transport: asyncio.Transport | None = None
        self._host = ""
        self._inbox = memoryview(bytearray(_INBOX_BYTES))
        self._frame: memoryview | None = None
        self._filled = 0
        self._size = 0
        self._waiting: LaterAnswer | None = None
        self._client_is_slow = False
        self._throttling: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Enter the open connections, which closes an idle one at the limit."""
        self._transport = cast(asyncio.Transport, transport)  # the loop gives a stream transport to stream servers
        self._host = f"/{self._transport.get_extra_info('peername')[0]}"
        if not self._connections.enter(self):
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the client and its pending answer."""
        self._connections.leave(self)
        self._transport = None
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        if self._throttling is not None:
            self._throttling.cancel()

    @property
    def is_idle(self) -> bool:
        """Whether only the client's next request is pending."""
        return self._waiting is None and self._throttling is None

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """Stop handling requests while the client does not read its responses."""
        self._client_is_slow = True
        if self._transport is not None:
            self._connections.unread.note(self, self._transport.get_write_buffer_size())
        self._apply_flow()

    def resume_writing(self) -> None:
        """Continue once the client has read its responses."""
        self._client_is_slow = False
        self._connections.unread.forget(self)
        self._go_on()

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes of the socket."""
        if self._frame is None:
            return self._inbox[self._filled :]
        if self._filled == len(self._frame):
            self._grow(self._frame)
        return self._frame[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """Record received bytes and handle the complete frames."""
        self._filled += nbytes
        self._go_on()

    def _go_on(self) -> None:
        while not self._must_wait and (frame := self._next_frame()) is not None:
            self._connections.note_use(self)
            self._handle_or_close(frame)
        self._apply_flow()

    def _next_frame(self) -> memoryview | None:
        """Return the next frame, without its length, or None while it is incomplete."""
        if self._frame is not None:
            if self._filled < self._size:
                return None
            frame, self._frame, self._filled = self._frame, None, 0
            self._connections.partial.forget(self)
            return frame
        if self._filled < _SIZE.size or self._transport is None or self._transport.is_closing():
            return None
        size: int = _SIZE.unpack_from(self._inbox)[0]
        most = self._most_request_bytes()
        if not _HEADER.size <= size <= most:
            self._refuse(f"a request of {size} bytes; the limit is {most}")
            return None
        if self._filled < _SIZE_AND_KEY.size:
            return None
        end = _SIZE.size + size
        if end <= self._filled:
            frame = memoryview(bytearray(self._inbox[_SIZE.size : end]))
            rest = self._filled - end
            self._inbox[:rest] = self._inbox[end : self._filled]
            self._filled = rest
            return frame
        if end > len(self._inbox):
            self._size = size
            self._frame = memoryview(bytearray(min(size, _FIRST_BUFFER)))
            self._filled -= _SIZE.size
            self._frame[: self._filled] = self._inbox[_SIZE.size : _SIZE.size + self._filled]
        return None

    def _most_request_bytes(self) -> int:
        config = self._state.config
        if self._filled < _SIZE_AND_KEY.size:
            return config.max_request_bytes
        _, key = _SIZE_AND_KEY.unpack_from(self._inbox)
        if key == PRODUCE:
            return config.max_request_bytes
        return min(config.max_request_bytes, config.max_other_request_bytes)

    def _grow(self, frame: memoryview) -> None:
        self._frame = memoryview(bytearray(min(self._size, 4 * len(frame))))
        self._frame[: self._filled] = frame
        self._connections.partial.note(self, len(self._frame))

    def _apply_flow(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._may_read != self._transport.is_reading():
            (self._transport.resume_reading if self._may_read else self._transport.pause_reading)()

    @property
    def _may_read(self) -> bool:
        if self._waiting is not None:
            return not self._filled
        return not self._must_wait

    @property
    def _must_wait(self) -> bool:
        return self._waiting is not None or self._client_is_slow or self._throttling is not None

    def _refuse(self, reason: str) -> None:
        _log.warning("closed the connection of %s: %s", self._peer(), reason)
        self.close()

    def _peer(self) -> str:
        return str(self._transport.get_extra_info("peername")) if self._transport is not None else "a client"

    def _handle_or_close(self, frame: memoryview) -> None:
        try:
            self._handle(frame)
        except (ConnectionClosingError, MalformedMessageError) as error:
            self._refuse(str(error))
        except Exception:
            # One request must not end the broker for all clients; its own client sees a closed connection.
            _log.exception("a request of %s failed", self._peer())
            self.close()

    def _handle(self, frame: memoryview) -> None:
        key, version, correlation_id = _HEADER.unpack_from(frame)
        api = self._apis.get(key)
        if api is None:
            raise MalformedMessageError(f"API {key} is not served")
        if not api.min_version <= version <= api.max_version:
            if key != API_VERSIONS:
                raise MalformedMessageError(
                    f"API {key} is served from version {api.min_version} to {api.max_version}, not in {version}"
                )
            call = _Call(key, 0, correlation_id, "", len(frame), 0.0)
            self._send(call, api_versions_response(ErrorCode.unsupported_version))
            return
        cursor = Cursor(frame)
        cursor.position = _HEADER.size
        # The client id is a string of the old form in every version of the header.
        client_id = str(cursor.take(max(cursor.length(False, INT16), 0)), "utf-8", "replace")
        if is_flexible(key, version):
            cursor.skip_tagged_fields()
        request = Request(version, request_decoder(key, version)(cursor), client_id, self._host)
        size = len(frame)  # the frame itself need not stay in memory while the answer is pending
        started = time.perf_counter()
        before_waiting_ms: float | None = None

        def handled() -> _Call:
            # For an answer that had to wait, only the time before it counts: waiting time must not.
            busy_ms = (time.perf_counter() - started) * 1000 if before_waiting_ms is None else before_waiting_ms
            return _Call(key, version, correlation_id, client_id, size, busy_ms)

        answer = api.handler(self._state, request)
        if isinstance(answer, LaterAnswer):
            self._waiting = answer
            answer.start(lambda response: self._finish(handled(), response))
            before_waiting_ms = (time.perf_counter() - started) * 1000
        else:
            self._send(handled(), answer)

    def _finish(self, call: _Call, response: Message) -> None:
        self._waiting = None
        if self._transport is None:
            return
        self._connections.note_use(self)
        self._send(call, response)
        # Another client's request may have completed this answer; the next request is handled after that one.
        if self._filled:
            asyncio.get_running_loop().call_soon(self._go_on)
        self._apply_flow()

    def _send(self, call: _Call, response: Message | None) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._state.quotas.are_set:
            response, wait_ms = self._state.quotas.throttle(
                call.key, call.client_id, call.size, response, call.busy_ms, time.monotonic() * 1000
            )
            if wait_ms:
                self._throttling = asyncio.get_running_loop().call_later(wait_ms / 1000, self._stop_throttling)
        if response is None:
            return
        sink = Sink()
        # ApiVersions keeps the old response header in all versions, because clients do not know the served versions
        # yet.
        has_tagged_header = call.key != API_VERSIONS and is_flexible(call.key, call.version)
        if has_tagged_header:
            sink.varint(0)
        try:
            response_encoder(call.key, call.version)(sink, response)
            sink.check_size()
        except OversizedMessageError as error:
            self._refuse(f"the answer to a request of API {call.key} is {error}")
            return
        size = sink.size
        prefix = _RESPONSE_HEADER.pack(_SIZE.size + size, call.correlation_id)
        if size < _JOINED_BYTES:
            self._transport.writelines([prefix, *sink.chunks])
        else:
            for chunk in (prefix, *sink.chunks):
                self._transport.write(memoryview(chunk))
            if self._client_is_slow:  # chunks after the first count, too
                self._connections.unread.note(self, self._transport.get_write_buffer_size())

    def _stop_throttling(self) -> None:
        self._throttling = None
        self._go_on()
