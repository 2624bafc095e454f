"""Warnings about user functions whose first results indicate a mistake.

Such mistakes are: None from `aggregate.append(value)` or from a function without `return`; the same list from an
initializer for all keys; a record that `process` returns instead of forwarding it.

An operator lists the functions whose results it uses (`UsesResults`). A wrapper replaces such a function until the
function has returned a value: a None before that logs one line per node and process. Calls with a None argument, except
as the key, do not count. Later calls have no overhead. A predicate may return None for false, so the code of a
predicate is examined instead: does it ever return anything else? The wrappers of initializers and of `process` also
exist for the first calls only. The function of an operator with calls counts by its answers, and is examined likewise.
"""

from __future__ import annotations

import dis
import inspect
import logging
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

from penstock.processor.api import Processor, ProcessorSupplier, SimpleSupplier
from penstock.processor.calling_processor import CallingProcessor
from penstock.processor.columns import ColumnCall
from penstock.processor.fixed_key import FixedKeyAdapter, FixedKeyProcessor

_log = logging.getLogger(__name__)

_OWN = __name__.partition(".")[0]

WARN_NONE_RESULTS = "penstock.warn.none.results"
"""The configuration key that turns the warnings off."""


class Held(NamedTuple):
    """A user function held by an operator.

    Args:
        attribute: the operator's attribute with the function.
        role: its name in the documentation.
        effect: the effect of a None result.
        keyed: whether the first of several arguments is the key.
        is_predicate: whether only the truth of its results matters.
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
INITIALIZER = Held("_initializer", "initializer")
AGGREGATOR = Held("_aggregator", "aggregator", _DELETES)
MERGER = Held("_merger", "merger", "which leaves the aggregator without the records so far")
REDUCER = Held("_reducer", "reducer", _DELETES, keyed=False)
KEYED_ADDER = Held("_adder", "adder", _DELETES)
KEYED_SUBTRACTOR = Held("_subtractor", "subtractor", _DELETES)
ADDER = KEYED_ADDER._replace(keyed=False)
SUBTRACTOR = KEYED_SUBTRACTOR._replace(keyed=False)
KEYED_JOINER = Held("_joiner", "joiner", _NULL_VALUE)
TABLE_JOINER = Held("_joiner", "joiner", _DELETES, keyed=False)
ID_MAPPER = MAPPER._replace(effect="which forwards the record without a search for duplicates")
FOREIGN_KEY = Held("_extract", "foreign key extractor", "which joins the row with nothing")


class NeedsResults:
    """An operator that refuses None as the result of its function."""

    expected: ClassVar[str]
    """The form of the results, for errors."""


class UsesResults:
    """An operator, or a part of one, that uses the results of user functions."""

    held: ClassVar[tuple[Held, ...]]
    """The functions; each attribute has one function, or a tuple of predicates."""

    def users(self) -> Iterable[UsesResults]:
        """Return the parts that hold functions; by default this object."""
        return (self,)


_settled: WeakKeyDictionary[ProcessorSupplier, set[str]] = WeakKeyDictionary()
"""The settled functions of each node.

These have returned a value in this process, or were already logged.
"""

_PROCESS = "process"

_RECORDS = 100
"""Number of records after which the return value of `process` is no longer checked."""


def watch_results(processor: object, supplier: ProcessorSupplier, node: str) -> None:
    """Log a warning for functions of `processor` whose first results indicate a mistake.

    Args:
        processor: an operator that is ready to run, or a user's processor. Operators of a ProcessorWrapper are ignored.
        supplier: the supplier of the processor; its processors share the findings.
        node: name of the node and its line in the program, for the message.
    """
    if isinstance(processor, FixedKeyAdapter | Processor) and not isinstance(processor, UsesResults):
        called = processor.inner if isinstance(processor, CallingProcessor) else processor
        _watch_process(called.inner if isinstance(called, FixedKeyAdapter) else called, supplier, node)
    if not isinstance(processor, UsesResults) or not isinstance(supplier, SimpleSupplier):
        return
    settled = _settled.setdefault(supplier, set())
    for user in processor.users():
        for held in user.held:
            if held.role in settled:
                continue
            if held is INITIALIZER:
                _watch_initializer(user, settled, node)
            elif held.is_predicate:
                _check_predicates(getattr(user, held.attribute), held, settled, node)
            else:
                _watch(user, held, settled, node)


def _check_predicates(found: Any, held: Held, settled: set[str], node: str) -> None:
    settled.add(held.role)
    for predicate in map(_written_by_user, found if isinstance(found, tuple) else (found,)):
        if _none_returns(predicate) == _ALL and not _is_lambda(predicate):
            _warn(predicate, held, node, "always returns None, which counts as false")


def _watch(user: UsesResults, held: Held, settled: set[str], node: str) -> None:
    function: Callable[..., Any] = getattr(user, held.attribute)
    if isinstance(function, ColumnCall):  # it returns a column, or raises
        return
    own = _written_by_user(function)
    if _is_of_package(own):  # such as a ready aggregation, whose state is None without values
        return
    if _is_lambda(own) and _none_returns(own) != _NO:  # an expression returns None only on purpose
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


def _watch_initializer(user: UsesResults, settled: set[str], node: str) -> None:
    function: Callable[[], Any] = getattr(user, INITIALIZER.attribute)
    first: list[tuple[Any, str]] = []  # the first aggregate, kept to reserve its id, and its repr

    def first_aggregates() -> Any:
        result = function()
        if not first:
            first.append((result, repr(result)))
            return result
        aggregate, shown = first[0]
        if result is aggregate and repr(result) != shown and INITIALIZER.role not in settled:
            _log.warning(
                "The initializer%s of %s returns the same %s each time, which has been changed since: all keys share "
                "one aggregate. Return a new one, such as `lambda: []`, or let the aggregator return a changed copy.",
                _shown(_written_by_user(function)),
                node,
                type(result).__name__,
            )
        settled.add(INITIALIZER.role)
        setattr(user, INITIALIZER.attribute, function)
        return result

    setattr(user, INITIALIZER.attribute, first_aggregates)


def _watch_process(processor: Processor | FixedKeyProcessor, supplier: ProcessorSupplier, node: str) -> None:
    is_own = _is_of_package(type(processor))
    if is_own or _PROCESS in vars(processor) or type(supplier).__hash__ is None:  # like that of a dataclass
        return
    settled, left = _settled.setdefault(supplier, set()), _RECORDS
    process: Callable[[Any], Any] = processor.process
    if _PROCESS in settled:
        return

    def first_records(record: Any) -> Any:
        nonlocal left
        result = process(record)
        left -= 1
        if result is not None and _PROCESS not in settled:
            _log.warning(
                "%s.process%s of %s returned %.100r, which goes nowhere: send records on with "
                "self.context.forward(record).",
                type(processor).__qualname__,
                _line(process),
                node,
                result,
            )
        if result is not None or not left:
            settled.add(_PROCESS)
            vars(processor).pop(_PROCESS, None)
        return result

    vars(processor)[_PROCESS] = first_records


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
    """Mark `adapter` as a wrapper of the user's `function`, and return it.

    The adapter calls the function with other arguments. The mark makes messages show the function.
    """
    vars(adapter)["__wrapped__"] = function
    return adapter


def _written_by_user(function: Any) -> Any:
    """Return the user's function in an adapter of this package; any other function itself."""
    return inspect.unwrap(function, stop=lambda each: not _is_of_package(each))


def _is_of_package(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).partition(".")[0] == _OWN


def no_result_error(function: Any, node: str, operator: NeedsResults) -> TypeError:
    """Return the error of a called function that returned None.

    Args:
        function: the function, or an adapter of it.
        node: the name of the node.
        operator: of the node.
    """
    return TypeError(
        f"The mapper{_shown(_written_by_user(function))} of {node} returned None where {operator.expected} was "
        "expected. A function without return returns None: return the result of the call."
    )


def _shown(function: Any) -> str:
    """Return name and line of a Python function; empty for other callables."""
    code = _code(inspect.unwrap(function))
    return "" if code is None else f" {code.co_name}{_line(function)}"


def _line(function: Any) -> str:
    code = _code(inspect.unwrap(function))
    return "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"


def _code(function: Any) -> Any:
    inner = function.__func__ if inspect.ismethod(function) else function
    return inner.__code__ if inspect.isfunction(inner) else None


def _is_lambda(function: Any) -> bool:
    code = _code(function)
    return code is not None and code.co_name == "<lambda>"


_NO, _SOME, _ALL = "no", "some", "all"


def _none_returns(function: Any) -> str:
    """Return whether no, some or all returns of a function are None.

    Only the constant None in Python functions without `yield` counts.
    """
    code = _code(function)
    if code is None or code.co_flags & (inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR):
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
