"""Functions of users that return None by mistake, as `aggregate.append(value)` or a function without `return` does.

An operator lists the functions whose results it uses (`UsesResults`). Until such a function has returned a value, a
wrapper is in its place: a None before that makes one line in the log, for each node and process. Calls that are given
a None, except as the key, count for nothing. Later calls cost nothing. A predicate may return None for false, so the
code of a predicate decides: whether it returns anything else.
"""

from __future__ import annotations

import dis
import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from penstock.processor.api import ProcessorSupplier, SimpleSupplier

_log = logging.getLogger(__name__)

_OWN = __name__.partition(".")[0]

WARN_NONE_RESULTS = "penstock.warn.none.results"
"""The configuration that turns the warnings off."""


class Held(NamedTuple):
    """A function of the user that an operator holds.

    attribute: where. role: what the documentation calls it. effect: what None means. keyed: whether the first of
    several arguments is the key. is_predicate: whether only the truth of its results matters.
    """

    attribute: str
    role: str
    effect: str = ""
    keyed: bool = True
    is_predicate: bool = False


_DELETES = "which deletes the entry of the key"
_NULL_VALUE = "which makes a record without a value"

PREDICATE = Held("_predicate", "predicate", is_predicate=True)
PREDICATES = PREDICATE._replace(attribute="_predicates")
MAPPER = Held("_mapper", "mapper", _NULL_VALUE)
TABLE_MAPPER = MAPPER._replace(effect=_DELETES)
GROUP_MAPPER = MAPPER._replace(effect="which leaves the entry out of the groups")
KEY_SELECTOR = Held("_selector", "mapper", "which makes a record without a key")
AGGREGATOR = Held("_aggregator", "aggregator", _DELETES)
MERGER = Held("_merger", "merger", "which leaves the aggregator without the records so far")
REDUCER = Held("_reducer", "reducer", _DELETES, keyed=False)
KEYED_ADDER = Held("_adder", "adder", _DELETES)
KEYED_SUBTRACTOR = Held("_subtractor", "subtractor", _DELETES)
ADDER = KEYED_ADDER._replace(keyed=False)
SUBTRACTOR = KEYED_SUBTRACTOR._replace(keyed=False)
KEYED_JOINER = Held("_joiner", "joiner", _NULL_VALUE)
TABLE_JOINER = Held("_joiner", "joiner", _DELETES, keyed=False)
FOREIGN_KEY = Held("_extract", "foreign key extractor", "which joins the row with nothing")


class UsesResults:
    """An operator, or a part of one, that uses what functions of the user return."""

    held: ClassVar[tuple[Held, ...]]
    """The functions; each attribute has one, or a tuple of predicates."""

    def users(self) -> Iterable[UsesResults]:
        """Return the parts that hold functions: this object, unless a subclass says otherwise."""
        return (self,)


_settled: WeakKeyDictionary[SimpleSupplier, set[str]] = WeakKeyDictionary()
"""For each node, the functions that have returned a value in this process, or that the log names."""


def watch_results(processor: object, supplier: ProcessorSupplier, node: str) -> None:
    """Warn of functions of `processor` whose first result is None.

    Args:
        processor: an operator that is ready to run; others, and those that a ProcessorWrapper made, are left alone.
        supplier: what made it; its processors share what has been found.
        node: name of the node and its line in the program, for the message.
    """
    if not isinstance(processor, UsesResults) or not isinstance(supplier, SimpleSupplier):
        return
    settled = _settled.setdefault(supplier, set())
    for user in processor.users():
        for held in user.held:
            if held.role in settled:
                continue
            if held.is_predicate:
                _check_predicates(getattr(user, held.attribute), held, settled, node)
            else:
                _watch(user, held, settled, node)


def _check_predicates(found: Any, held: Held, settled: set[str], node: str) -> None:
    settled.add(held.role)
    for predicate in found if isinstance(found, tuple) else (found,):
        if _none_returns(predicate) == _ALL and not _is_lambda(predicate):
            _warn(predicate, held, node, "always returns None, which counts as false")


def _watch(user: UsesResults, held: Held, settled: set[str], node: str) -> None:
    function: Callable[..., Any] = getattr(user, held.attribute)
    own = _written_by_user(function)
    if _is_lambda(own) and _none_returns(own) != _NO:  # an expression says None only where it is meant
        return

    def first_result(*arguments: Any) -> Any:
        result = function(*arguments)
        if any(each is None for each in (arguments[1:] if held.keyed and len(arguments) > 1 else arguments)):
            return result
        if result is None and held.role not in settled:
            _warn(own, held, node, f"returned None, {held.effect}, and has returned no value before")
        settled.add(held.role)
        setattr(user, held.attribute, function)
        return result

    setattr(user, held.attribute, first_result)


def _warn(function: Any, held: Held, node: str, what: str) -> None:
    _log.warning(
        "The %s%s of %s %s. A function without return returns None, and so do methods that change an object, such as "
        "list.append: return the value. If None is meant, set %s=false.",
        held.role,
        _shown(function),
        node,
        what,
        WARN_NONE_RESULTS,
    )


def adapting(function: Callable[..., Any], adapter: Callable[..., Any]) -> Callable[..., Any]:
    """Return `adapter`, which calls the user's `function` with other arguments, so that messages show the function."""
    vars(adapter)["__wrapped__"] = function
    return adapter


def _written_by_user(function: Any) -> Any:
    """Return the user's function that an adapter of this package calls; any other function itself."""
    return inspect.unwrap(function, stop=lambda each: str(getattr(each, "__module__", "")).partition(".")[0] != _OWN)


def _shown(function: Any) -> str:
    """Return name and line of a function that is written in Python; nothing of others."""
    code = _code(inspect.unwrap(function))
    return "" if code is None else f" {code.co_name} ({code.co_filename}:{code.co_firstlineno})"


def _code(function: Any) -> Any:
    inner = function.__func__ if inspect.ismethod(function) else function
    return inner.__code__ if inspect.isfunction(inner) else None


def _is_lambda(function: Any) -> bool:
    code = _code(function)
    return code is not None and code.co_name == "<lambda>"


_NO, _SOME, _ALL = "no", "some", "all"


def _none_returns(function: Any) -> str:
    """Return whether no, some or all returns of a plain Python function return the constant None."""
    code = _code(function)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return _NO
    none, values = 0, 0
    before: dis.Instruction | None = None
    for each in dis.get_instructions(code):
        if each.opname in ("RETURN_VALUE", "RETURN_CONST"):
            returned = each if each.opname == "RETURN_CONST" else before
            is_none = returned is not None and returned.opname.endswith("_CONST") and returned.argval is None
            none, values = none + is_none, values + (not is_none)
        before = each
    return _NO if not none else _SOME if values else _ALL
