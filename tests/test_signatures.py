"""Signatures of users' functions, of which some are built-ins."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from penstock.signatures import misfit, signature_of


class Seen(list[str]):
    """A list that can have a weak reference."""


@pytest.mark.parametrize("function", [len, str.upper, str.split, "a".join, lambda text, size=3: text, Seen().append])
def test_a_signature_is_that_of_inspect_each_time(function: Callable[..., Any]) -> None:
    assert [signature_of(function), signature_of(function)] == [inspect.signature(function)] * 2


def test_a_built_in_without_a_signature_fits_any_arguments() -> None:
    assert signature_of(max) is None
    assert misfit(max) is None


@pytest.mark.parametrize("function", [len, str.upper, lambda text: text])
def test_a_misfit_is_explained(function: Callable[..., Any]) -> None:
    assert misfit(function, "a") is None
    assert misfit(function, "a", "b", "c") == "too many positional arguments"


def test_an_object_is_not_kept_for_its_method() -> None:
    seen = Seen()
    found = weakref.ref(seen)
    assert signature_of(seen.append) is not None
    del seen
    assert found() is None
