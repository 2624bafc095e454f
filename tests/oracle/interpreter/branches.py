"""The operation `split` of a case: its branches and their options (FORMAT.md section 4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock import Branched, KStream
from tests.oracle.interpreter import functions
from tests.oracle.interpreter.vocabulary import PLAIN, Fields, ListOf, Reader


def _branched(
    name: str | None = None, map_values: Any = None, returns_null: bool = False, to: str | None = None
) -> Branched | None:
    if map_values is not None:
        return Branched.with_function(lambda stream: stream.map_values(lambda k, v: map_values(k, v)), name)
    if returns_null:
        return Branched.with_function(lambda stream: None, name)
    if to is not None:
        return Branched.with_consumer(lambda stream: stream.to(to), name)
    return None if name is None else Branched.as_(name)


def _branch(predicate: Any, **options: Any) -> tuple[Any, Branched | None]:
    return predicate, _branched(**options)


_OPTIONS: Mapping[str, Reader] = {
    "name": PLAIN,
    "map_values": functions.VALUE_MAPPERS,
    "returns_null": PLAIN,
    "to": PLAIN,
}

BRANCHES = ListOf(Fields("branch", {"predicate": functions.PREDICATES, **_OPTIONS}, _branch))
DEFAULT_BRANCH = Fields("branch", _OPTIONS, lambda **options: (_branched(**options),))


def split(stream: KStream, branches: Any, default: Any = None, named: str | None = None) -> Mapping[str, KStream]:
    """Return the branches of `stream` by name; `default`: a tuple of the options of the default branch, None for no
    such branch.
    """
    branched = stream.split(named)
    for predicate, options in branches:
        branched = branched.branch(predicate, options)
    return branched.no_default_branch() if default is None else branched.default_branch(*default)
