"""Redirects the dead letters of users' exception handlers, which choose the topics themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from penstock.config import StreamsConfig
from penstock.exception_handlers import (
    BUILT_IN,
    DeserializationExceptionHandler,
    ErrorHandlerContext,
    ExceptionHandler,
    ProcessingExceptionHandler,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    SerializationExceptionOrigin,
)
from penstock.shadow.redirected_topics import RedirectedTopics

_HANDLERS: Final = (
    "deserialization.exception.handler",
    "processing.exception.handler",
    "production.exception.handler",
)


class RedirectedHandler(DeserializationExceptionHandler, ProcessingExceptionHandler, ProductionExceptionHandler):
    """Decides as a user's handler, and redirects its dead letters.

    Args:
        handler: of the user.
        topics: names and creates the redirected topics.
    """

    def __init__(self, handler: Any, topics: RedirectedTopics) -> None:
        self._handler = handler
        self._topics = topics

    def configure(self, config: Mapping[str, Any]) -> None:
        """Configure the user's handler."""
        self._handler.configure(config)

    def handle_error(self, context: ErrorHandlerContext, record: Any, error: Exception) -> Response:
        """Return the response of the user's handler."""
        return self._redirected(self._handler.handle_error(context, record, error))

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        error: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        """Return the response of the user's handler."""
        return self._redirected(self._handler.handle_serialization_error(context, record, error, origin))

    def _redirected(self, response: Response) -> Response:
        letters = response.dead_letter_queue_records
        return replace(response, dead_letter_queue_records=tuple(map(self._moved, letters))) if letters else response

    def _moved(self, letter: ProducerRecord) -> ProducerRecord:
        return letter._replace(topic=self._topics.of(letter.topic))


def held_handlers(config: StreamsConfig, topics: RedirectedTopics) -> dict[str, ExceptionHandler]:
    """Return the users' handlers of a configuration by their keys, with redirected dead letters.

    The built-in handlers write to the dead letter queue of the configuration.
    """
    users = {key: config[key] for key in _HANDLERS if type(config[key]) not in BUILT_IN.values()}
    return {key: RedirectedHandler(handler, topics) for key, handler in users.items()}
