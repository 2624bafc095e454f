"""Reads what operators with calls have written to their answers topics."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.processor.calls import unpack_answer


def first_results(answers: Iterable[tuple[int, bytes | None]], topic: str) -> list[str]:
    """Return the text of the first answer for each waiting record, or of the error of a failed call.

    Args:
        answers: partition and value of the records of the answers topic, in order for each partition.
        topic: its name, for errors.
    """
    found: dict[tuple[int, int, bytes], str] = {}
    for partition, value in answers:
        answer = unpack_answer(value or b"", topic)
        failure = answer.failure.partition(": ")[2]
        text = failure if answer.result is None else msgspec.msgpack.decode(answer.result)
        found.setdefault((partition, answer.sequence, answer.entry), text)
    return [*found.values()]
