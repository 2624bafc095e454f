"""Answers that may come later than their requests.

Rule: a connection handles no further request until its answer is given or the connection is lost, so answers keep the
order of the requests. Giving an answer never handles another request in the same call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from penstock_broker.wire.codec import Message


class LaterAnswer(ABC):
    """The answer to one request, possibly after waiting for records, other clients or time."""

    __slots__ = ()

    @abstractmethod
    def start(self, done: Callable[[Message], None]) -> None:
        """Answer immediately if possible, otherwise as soon as it is.

        Args:
            done: called once with the response.
        """

    @abstractmethod
    def cancel(self) -> None:
        """Stop waiting because the client is gone; no answer is given."""


class PromisedAnswer(LaterAnswer):
    """An answer given by another part of the broker, such as a group coordinator."""

    __slots__ = ("_done", "_response")

    def __init__(self) -> None:
        self._done: Callable[[Message], None] | None = None
        self._response: Message | None = None

    def give(self, response: Message) -> None:
        """Answer with a response, which is dropped if the client is gone."""
        if self._done is None:
            self._response = response
            return
        done, self._done = self._done, None
        done(response)

    def start(self, done: Callable[[Message], None]) -> None:
        """Answer immediately if the response is available, otherwise when it arrives."""
        if self._response is not None:
            done(self._response)
        else:
            self._done = done

    def cancel(self) -> None:
        """Drop the answer; the coordinator keeps the member until its session expires."""
        self._done = None
