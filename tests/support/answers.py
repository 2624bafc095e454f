"""Compares what an application answers in JSON with the types of its schema."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from penstock.tools.ui.schema import ADDRESSES, Failure


def check_answer(path: str, answer: Any, status: int = 200) -> None:
    """Fail if an answer lacks a field, or has one that the schema does not have, or a value of another type.

    path: with or without parameters. status: of HTTP.
    """
    if path.partition("?")[0] == "/api/v1/schema.json":
        return
    expected = _type_of(path.partition("?")[0], status)
    found = msgspec.convert(answer, expected)  # fields that a type does not have are left out
    assert msgspec.to_builtins(found) == answer


def _type_of(path: str, status: int) -> Any:
    found = [
        address
        for template, address in ADDRESSES.items()
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path)
    ]
    if status >= 400 and not (found and status == 503):
        return Failure
    assert found, f"The schema has no address {path}."
    return found[0].answer if status < 400 else found[0].unavailable
