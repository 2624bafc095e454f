"""The dead letters of users' handlers go to redirected topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.config import StreamsConfig
from penstock.exception_handlers import (
    ErrorHandlerContext,
    LogAndContinueExceptionHandler,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    SerializationExceptionOrigin,
)
from penstock.shadow.held_letters import held_handlers
from penstock.shadow.redirected_topics import RedirectedTopics

TOPICS = RedirectedTopics("app-shadow-new.output.", {}, {})
CONTEXT = ErrorHandlerContext("in", 0, 5, (), "node", "0_0", 1_000)


class Own(ProductionExceptionHandler):
    """Writes to a topic of its own, and to that of the configuration."""

    configured: str | None = None

    def configure(self, config: Mapping[str, Any]) -> None:
        self.configured = config["errors.dead.letter.queue.topic.name"]

    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, error: Exception) -> Response:
        letters = [ProducerRecord(topic, b"k", b"v", 5) for topic in ("own", self.configured) if topic]
        return Response.resume(letters)

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        error: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        return Response.fail([ProducerRecord(f"own-{origin.value}", b"k", b"v", 5)])


def test_letters_of_a_users_handler_are_redirected_once() -> None:
    config = StreamsConfig(
        {
            "application.id": "app",
            "production.exception.handler": Own(),
            "deserialization.exception.handler": LogAndContinueExceptionHandler,
            "errors.dead.letter.queue.topic.name": "app-shadow-new.output.dead",
        }
    )
    held = held_handlers(config, TOPICS)
    assert list(held) == ["production.exception.handler"]
    handler = config.overridden(held)["production.exception.handler"]
    handler.configure(config)
    record = ProducerRecord("out", b"k", b"v", 5)
    answer = handler.handle_error(CONTEXT, record, ValueError())
    assert [letter.topic for letter in answer.dead_letter_queue_records] == [
        "app-shadow-new.output.own",
        "app-shadow-new.output.dead",
    ]
    assert answer.result == Response.resume().result
    failed = handler.handle_serialization_error(CONTEXT, record, ValueError(), SerializationExceptionOrigin.KEY)
    assert [letter.topic for letter in failed.dead_letter_queue_records] == ["app-shadow-new.output.own-key"]


@pytest.mark.parametrize("response", [Response.resume(), Response.retry()])
def test_a_response_without_letters_stays(response: Response, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Own, "handle_error", lambda *_: response)
    config = StreamsConfig({"application.id": "app", "production.exception.handler": Own()})
    handler: Any = held_handlers(config, TOPICS)["production.exception.handler"]
    assert handler.handle_error(CONTEXT, None, ValueError()) == response
