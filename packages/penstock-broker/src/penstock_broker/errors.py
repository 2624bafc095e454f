"""Errors of the embedded broker.

Contains the exceptions that the broker raises while it starts, and the one that carries a Kafka error code to a
client. What the clients of the broker raise does not live here. Rule: the text names what was found, what was expected,
and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import MOST_STRING

_MOST_CHARACTERS: Final = MOST_STRING // 4
"""Of a message, which may repeat what a request names; a character has up to four bytes."""


class BrokerError(RuntimeError):
    """The embedded broker cannot start or continue.

    What to do: Read the reason in the message. Another process may use its port or its directory: choose others with
    `--port` and `--data-dir`, or name a broker that runs in `bootstrap.servers`.
    """


class ApiError(Exception):
    """A request, or one part of it, is answered with a Kafka error code.

    Args:
        code: the code that goes over the wire.
        message: what was wrong; sent if the response has room for a message, only its beginning if it is very long.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message[:_MOST_CHARACTERS] or None


class RefusedRecordsError(ApiError):
    """Some records of a batch are refused, and so the batch is (KIP-467).

    Args:
        code: the code that goes over the wire.
        message: what was wrong.
        records: the refused records: the place of each in its batch, from 0, and the reason.
    """

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


class ConnectionClosingError(Exception):
    """A request is not answered, and its connection is closed; the message gives the reason."""
