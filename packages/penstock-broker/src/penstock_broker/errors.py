"""Errors of the embedded broker.

Contains the exceptions raised at startup, and the one that carries a Kafka error code to a client. Exceptions of the
broker's clients do not belong here. Rule: the text names the value found, the expected value, and a remedy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock_broker.wire.error_codes import ErrorCode
from penstock_broker.wire.primitives import MOST_STRING

_MOST_CHARACTERS: Final = MOST_STRING // 4
"""Maximum characters of a message.

A message may repeat names of a request, and a character has up to four bytes.
"""


class BrokerError(RuntimeError):
    """The embedded broker cannot start or continue.

    What to do: Read the reason in the message. Another process may use its port or its directory: choose others with
    `--port` and `--data-dir`, or name a broker that runs in `bootstrap.servers`.
    """


class ApiError(Exception):
    """A request, or one part of it, is answered with a Kafka error code.

    Args:
        code: the error code for the response.
        message: the problem; sent if the response has a field for a message, truncated if it is very long.
    """

    def __init__(self, code: ErrorCode, message: str = "") -> None:
        super().__init__(message or code.name)
        self.code = code
        self.message = message[:_MOST_CHARACTERS] or None


class RefusedRecordsError(ApiError):
    """Some records of a batch are rejected, and therefore the whole batch (KIP-467).

    Args:
        code: the error code for the response.
        message: the problem.
        records: the rejected records: the index of each in its batch, from 0, and the reason.
    """

    def __init__(self, code: ErrorCode, message: str, records: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


class ConnectionClosingError(Exception):
    """A request is not answered and its connection is closed; the message gives the reason."""
