"""The exception handlers that a case may name, "continue" or "fail", and their dead letters as a case shows them."""

from __future__ import annotations

from typing import Any

from penstock.exception_handlers import (
    HEADER_ERRORS_EXCEPTION,
    HEADER_ERRORS_STACKTRACE,
    ErrorHandlerContext,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    ProducerRecord,
    ProductionExceptionHandler,
    Response,
    SerializationExceptionOrigin,
)
from tests.oracle.interpreter.vocabulary import Words


class ContinueProduction(ProductionExceptionHandler):
    """Drops what cannot be written."""

    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, error: Exception) -> Response:
        """Resume."""
        return Response.resume()

    def handle_serialization_error(
        self,
        context: ErrorHandlerContext,
        record: ProducerRecord,
        error: Exception,
        origin: SerializationExceptionOrigin,
    ) -> Response:
        """Resume."""
        return Response.resume()


class FailProduction(ProductionExceptionHandler):
    """Fails where something cannot be written."""

    def handle_error(self, context: ErrorHandlerContext, record: ProducerRecord, error: Exception) -> Response:
        """Fail."""
        return Response.fail()


def _handlers(going_on: type[Any], failing: type[Any]) -> Words:
    return Words("exception handler", {"continue": lambda: going_on, "fail": lambda: failing})


DESERIALIZATION_HANDLERS = _handlers(LogAndContinueExceptionHandler, LogAndFailExceptionHandler)
PROCESSING_HANDLERS = _handlers(LogAndContinueProcessingExceptionHandler, LogAndFailProcessingExceptionHandler)
PRODUCTION_HANDLERS = _handlers(ContinueProduction, FailProduction)

# What Java shows of the errors that the cases raise.
_JAVA_CLASSES = {
    "builtins.RuntimeError": "java.lang.IllegalStateException",
    "builtins.TypeError": "java.lang.NullPointerException",
    "penstock.errors.StreamsError": "org.apache.kafka.streams.errors.StreamsException",
    "penstock.errors.SerializationError": "org.apache.kafka.common.errors.SerializationException",
}


def shown(header: str, text: str | None) -> str | None:
    """Return the text of a header as a case shows it: names of classes as in Java, no traces of the stack."""
    if header == HEADER_ERRORS_EXCEPTION and text is not None:
        return _JAVA_CLASSES.get(text, text)
    if header == HEADER_ERRORS_STACKTRACE and text is not None and "Traceback" in text:
        return "<stack trace>"
    return text
