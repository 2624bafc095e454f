"""An error as a case shows it: by the name of Kafka's class, its message, and its causes."""

from __future__ import annotations

from typing import Any

# Where Penstock raises an error of Python's own; any other `XError` is Kafka's `XException`.
_KAFKA_NAMES: dict[type[BaseException], str] = {
    ValueError: "IllegalArgumentException",
    RuntimeError: "IllegalStateException",
    TypeError: "NullPointerException",
}


def class_name(error: BaseException) -> str:
    """Return the name of the class in Kafka that `error` stands for."""
    own_name = _KAFKA_NAMES.get(type(error))
    return own_name if own_name is not None else type(error).__name__.removesuffix("Error") + "Exception"


def to_json(phase: str, at: int, error: BaseException) -> dict[str, Any]:
    """Return the `error` object of FORMAT.md section 2."""
    return {"phase": phase, "at": at, **_described(error)}


def _described(error: BaseException) -> dict[str, Any]:
    result: dict[str, Any] = {"class": class_name(error), "message": str(error)}
    if error.__cause__ is not None:
        result["cause"] = _described(error.__cause__)
    return result
