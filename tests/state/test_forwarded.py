"""Methods of a view that forward to a store."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from penstock.state.forwarded import method_of, method_that, needs_key


class Declared:
    """The protocol."""

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        """Return the window of `key`."""
        raise NotImplementedError


class Kept(Declared):
    """A store that returns its arguments."""

    def fetch(self, key: Any, time_from: int, time_to: int | None = None) -> Any:
        return key, time_from, time_to


class View:
    """Forwards in each way."""

    def __init__(self) -> None:
        self.store = Kept()

    def _check_key(self, key: Any) -> None:
        if key is None:
            raise TypeError("no key")

    of = method_of("store", Declared.fetch)
    that = method_that(lambda view, read: ("read", read(view.store)), Declared.fetch)
    keyed = needs_key(of)


@pytest.mark.parametrize("method", [View.of, View.that, View.keyed])
def test_a_method_has_the_signature_and_docstring_of_its_declaration(method: Any) -> None:
    assert signature(method) == signature(Declared.fetch)
    assert method.__doc__ == Declared.fetch.__doc__


def test_arguments_reach_the_store_by_position_and_by_name() -> None:
    view = View()
    assert view.of("a", 1) == ("a", 1, None)
    assert view.of("a", time_to=2, time_from=1) == ("a", 1, 2)
    assert view.that("a", 1, time_to=2) == ("read", ("a", 1, 2))


def test_a_key_of_none_is_rejected_wherever_it_is_given() -> None:
    view = View()
    assert view.keyed(key="a", time_from=1) == ("a", 1, None)
    for call in (lambda: view.keyed(None, 1), lambda: view.keyed(time_from=1, key=None)):
        with pytest.raises(TypeError, match="no key"):
            call()


def test_a_missing_key_is_the_error_of_python() -> None:
    call: Any = View().keyed
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'key'"):
        call(time_from=1)
