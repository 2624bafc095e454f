"""Checks of the users' arguments to operators: options, serdes, windows.

Each error shows the correct form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

from penstock.dsl.graph import Graph
from penstock.errors import TopologyError
from penstock.plan.nodes.base import BaseNode, NodeId
from penstock.plan.nodes.stream import StreamSourceNode
from penstock.plan.nodes.table import GlobalSourceNode, TableSourceNode
from penstock.plan.user_lines import at_line
from penstock.serdes import Serde, Serdes
from penstock.serdes.format import read_type, written_type
from penstock.windows import SessionWindows, SlidingWindows, Windowed, Windows

Options = TypeVar("Options")


class _NamesSerdes(Protocol):
    """A dataclass of options with serdes; None for serdes not set by the user."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def key_serde(self) -> Serde | None:
        """The key serde."""
        ...

    @property
    def value_serde(self) -> Serde | None:
        """The value serde."""
        ...


Inheriting = TypeVar("Inheriting", bound=_NamesSerdes)

_AS_TEXT: Mapping[str, str] = {
    "Consumed": "several topics go in a list; Consumed.as_({0!r}) names a node, Materialized.as_({0!r}) a store",
    "Materialized": "write Materialized.as_({0!r})",
    "Deduplicated": "write Deduplicated.as_({0!r})",
    "Grouped": "write Grouped.as_({0!r})",
    "Produced": "write Produced.as_({0!r})",
    "Repartitioned": "write Repartitioned.as_({0!r})",
    "Joined": "write joined=Joined.as_({0!r})",
    "StreamJoined": "write StreamJoined.as_({0!r})",
    "TableJoined": "write TableJoined.as_({0!r})",
}
"""The probable meaning of a string instead of these options."""

_KEYWORDS: Mapping[str, str] = {
    "Joined": "joined",
    "Materialized": "materialized",
    "Named": "named",
    "StreamJoined": "stream_joined",
    "TableJoined": "table_joined",
}
"""The keywords of options that are positional in Java."""

_ALONE = frozenset({"Deduplicated", "Grouped", "Produced", "Repartitioned"})
"""The options of operators that have no keywords for others."""


def option(given: Options | None, otherwise: Options) -> Options:
    """Return `given`, or `otherwise` if it is None; raises TypeError for different classes."""
    if given is None:
        return otherwise
    kind = type(otherwise)
    if isinstance(given, kind):
        return given
    name = kind.__name__
    if isinstance(given, str) and name in _AS_TEXT:
        hint = _AS_TEXT[name].format(given)
    elif isinstance(given, Serde) or _makes_serdes(given):
        hint = f"write {name}.with_(key_serde, value_serde)"
    else:
        hint = "" if name in _ALONE else by_name_hint(given)
        hint = hint or f"{name}.with_(...) and {name}.as_(name) create one"
    raise TypeError(f"Expected {name}, got {given!r}: {hint}.")


def by_name_hint(given: object) -> str:
    """Return the keyword form of the options `given`; empty for other objects."""
    kind = type(given).__name__
    return f"give it by name, {_KEYWORDS[kind]}=..." if kind in _KEYWORDS else ""


def check_by_name(join: str, takes: Sequence[str], by_position: Sequence[object], by_name: Iterable[str]) -> None:
    """Raise TypeError unless a join receives its options by keyword, and only valid ones.

    Args:
        join: the name of the join, for the message.
        takes: the keywords of its options.
        by_position: the extra positional arguments, as in Java.
        by_name: the given keywords.
    """
    taken = " and ".join(takes)
    if by_position:
        given = by_position[0]
        keyword = _KEYWORDS.get(type(given).__name__)
        if keyword is None:
            raise TypeError(f"{join} takes {taken} by name, but {given!r} is given by position.")
        write = f": write {keyword}=..." if keyword in takes else ""
        raise TypeError(f"{join} takes {taken} by name, but its {type(given).__name__} is given by position{write}.")
    for name in by_name:
        if name not in takes:
            raise TypeError(f"{join} has no argument {name}: it takes {taken}.")


def first(*serdes: Serde | None) -> Serde | None:
    """Return the first of `serdes` that is not None, or None."""
    return next((serde for serde in serdes if serde is not None), None)


def inheriting(options: Inheriting, key_serde: Serde | None, value_serde: Serde | None) -> Inheriting:
    """Return a copy of `options` with these serdes in place of missing ones."""
    return replace(
        options,
        key_serde=first(options.key_serde, key_serde),
        value_serde=first(options.value_serde, value_serde),
    )


def inherited(where: str, options: Inheriting, key_serde: Serde | None, value_serde: Serde | None) -> Inheriting:
    """Return a copy of `options` with serdes of its keys and values for missing ones.

    Raises TypeError if an option's serde cannot write the values that the inherited one reads.

    where: the operator, for the message.
    """
    check_fits(where, "key", options.key_serde, key_serde)
    check_fits(where, "value", options.value_serde, value_serde)
    return inheriting(options, key_serde, value_serde)


def check_fits(where: str, part: str, named: Serde | None, known: Serde | None) -> None:
    """Raise TypeError if serde `named` cannot write the values that `known` reads.

    part: "key" or "value".
    """
    if named is None or known is None:
        return
    writes, given = written_type(named), read_type(known)
    if writes is None or given is None or issubclass(given, writes) or (given is int and writes is float):
        return
    example = ", such as WindowedSerdes.time_windowed(Serdes.string(), size_ms)" if given is Windowed else ""
    raise TypeError(
        f"{where}{at_line()}: the {part}s are of type {given.__name__}, but "
        f"{type(named).__name__} writes {writes.__name__}. Name a serde of {given.__name__}{example}, or convert the "
        f"{part}s first."
    )


def check_same_builder(graph: Graph, other: Graph) -> None:
    """Raise TopologyError unless both sides of an operator come from one StreamsBuilder."""
    if graph is not other:
        raise TopologyError(
            "The other side was made by another StreamsBuilder: read all topics of a topology with one builder."
        )


def check_keys_meet(
    graph: Graph,
    node: NodeId,
    key_serde: Serde | None,
    other: NodeId,
    other_key_serde: Serde | None,
    keys: str = "keys",
) -> None:
    """Raise TypeError if the key types of a join's two sides are never equal.

    Args:
        graph: the operators so far.
        node, other: the joined operators.
        key_serde, other_key_serde: the serdes of their keys, None if unknown.
        keys: the values compared with the keys of `other`, for the message.
    """
    one, two = (None if serde is None else read_type(serde) for serde in (key_serde, other_key_serde))
    if one is None or two is None or issubclass(one, two) or issubclass(two, one):
        return
    one_side, other_side = (_described(graph.node(each)) for each in (node, other))
    raise TypeError(
        f"Join{at_line()}: the {keys} of {one_side} are of type {one.__name__}, "
        f"and the keys of {other_side} of type {two.__name__}, so no records would meet. Convert the keys of "
        "one side first, such as with select_key, or correct its serde of keys."
    )


def _described(node: BaseNode) -> str:
    """Return the name of an operator, with its topics and the line that created it."""
    match node:
        case StreamSourceNode(pattern=None):
            reads = f"reads {', '.join(node.topics)}"
        case TableSourceNode() | GlobalSourceNode():
            reads = f"reads {node.topic}"
        case _:
            reads = ""
    made = "" if node.line is None else f"created at {node.line}"
    details = ", ".join(filter(None, (reads, made)))
    return f"{node.name} ({details})" if details else node.name


def by_position(names: Sequence[str], given: Sequence[Any], by_keyword: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of `by_keyword` and the positional ones, ordered by `names`.

    Raises TypeError for an option given twice, or for too many positional ones.
    """
    if len(given) > len(names):
        raise TypeError(f"Expected {', '.join(names)} by position, got {len(given)} arguments.")
    twice = [name for name in names[: len(given)] if name in by_keyword]
    if twice:
        raise TypeError(f"{twice[0]} is given twice, by position and by keyword.")
    return {**dict(zip(names, given, strict=False)), **by_keyword}


def is_function(given: object) -> bool:
    """Return whether `given` is a user's function, not an uncalled factory of a serde."""
    return callable(given) and not _makes_serdes(given) and not _is_uncalled(given)


def check_serdes(options: object, *names: str, made_by: str = ".with_") -> None:
    """Raise TypeError unless the attributes `names` of `options` are Serdes or None.

    made_by: what follows the name of the class where a program makes the options.
    """
    for name in names:
        given = getattr(options, name)
        if given is not None and not isinstance(given, Serde):
            where = f"{type(options).__name__}{made_by}"
            raise TypeError(f"Expected a Serde as {name} of {where}, got {given!r}{serde_hint(given)}.")


def check_number(what: str, number: object, smallest: int = 1) -> None:
    """Raise TypeError unless `number` is a whole number, ValueError if it is below `smallest`."""
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"Expected {what} as a whole number, got {number!r}.")
    if number < smallest:
        raise ValueError(f"Expected {what} to be {smallest} or more, got {number!r}.")


def check_windows(windows: object) -> None:
    """Raise TypeError if `windows` cannot group records."""
    if not isinstance(windows, Windows | SlidingWindows | SessionWindows):
        raise TypeError(
            f"Expected TimeWindows, CalendarWindows, SlidingWindows, SessionWindows, UnlimitedWindows or your own "
            f"Windows, got {windows!r}: write TimeWindows.of_size_with_no_grace(timedelta(minutes=5)), for example."
        )


def _makes_serdes(given: Any) -> bool:
    return isinstance(given, type) and issubclass(given, Serde)


def _is_uncalled(given: Any) -> bool:
    return str(getattr(given, "__qualname__", "")).startswith("Serdes.")


def serde_hint(given: Any) -> str:
    """Return the correct form for `given`, not a serde, as a message's end."""
    if _makes_serdes(given):
        return f": write {given.__name__}()"
    if _is_uncalled(given):
        return f": call it, {given.__qualname__}()"
    if isinstance(given, type):
        return f": write Serdes.msgpack({given.__qualname__}), or the serde of another format"
    if isinstance(given, str) and given.isidentifier() and hasattr(Serdes, given):
        return f": write Serdes.{given}()"
    if isinstance(given, str):
        return f": a name is given as name={given!r}"
    return ": everything but serdes is given by keyword"


def checked_partitions(partitions: int | None) -> int | None:
    """Return the number of partitions of a new topic; raises ValueError if it is below 1."""
    if partitions is not None and partitions < 1:
        raise ValueError(f"A topic has 1 partition or more, got partitions={partitions}.")
    return partitions
