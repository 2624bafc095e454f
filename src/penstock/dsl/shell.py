"""Errors for using streams, tables and groups as Python collections, and for Kafka's names.

Type checkers do not see this module's methods: for them, such code remains an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

_BEFORE_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Shell:
    """The base of the users' DSL objects: it has no records, and no truth value."""

    _instead: ClassVar[Mapping[str, str]] = {}
    """Replacements for operators of other DSL classes, or of older Kafka Streams, by name."""

    _iterated: ClassVar[str] = (
        "Pass a function to an operator, such as stream.foreach(lambda key, value: ...); in a notebook, head() shows "
        "the first records."
    )
    """The replacement for a loop."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if name.startswith("_"):
                raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self)
            own = _BEFORE_CAPITALS.sub("_", name).lower()
            write = own if name != own and hasattr(kind, own) else kind._instead.get(own)
            if write is None:
                raise AttributeError(f"{kind.__name__!r} object has no attribute {name!r}", name=name, obj=self)
            text = f"{kind.__name__} has no {name}: write {write}."
            raise AttributeError(text, name=name, obj=None)  # with an object, Python would suggest a second name

        def __iter__(self) -> NoReturn:
            raise TypeError(
                f"A {type(self).__name__} cannot be iterated: it describes a topology and has no records while the "
                f"program is built. {self._iterated}"
            )

        def __bool__(self) -> NoReturn:
            raise TypeError(
                f"A {type(self).__name__} is neither true nor false: it describes a topology. Records are tested by an "
                "operator, such as stream.filter(lambda key, value: ...); write `is not None` for whether there is one."
            )

        def __getitem__(self, item: object) -> NoReturn:
            raise TypeError(
                f"A {type(self).__name__} has no items, such as {item!r}: it describes a topology. Fields are read in "
                'an operator, such as stream.map_values(lambda value: value["field"]), and records are tested with '
                'stream.filter(lambda key, value: value["field"] > 0).'
            )
