"""Functions that take whole columns of a batch, instead of one row.

An annotation makes a function one of them: each parameter is an array of numpy, Arrow, polars or pandas, or the
function has the mark of `vectorized`, and its parameters may be lists.

Rules:
- A function returns a column of the same length. Anything else is an error of the program, without a handler.
- If it fails on a batch, it is called again for halves of the batch, down to single rows. So only rows on which it
  fails alone are failures, in the order of the rows, and it may see a row more than once.
- Where a record is processed alone, the function takes columns of length 1.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Concatenate, Final, Generic, ParamSpec, Protocol, TypeVar, overload

from penstock.processor.arrays import (
    LIBRARIES,
    LIST,
    ColumnForm,
    Form,
    check_is_column,
    column_form,
    column_in,
    list_form,
    made,
)
from penstock.processor.columns import ColumnCall, ColumnError
from penstock.serdes.api import Library
from penstock.signatures import signature_of

MARK: Final = "__penstock_columns__"
"""The attribute of marked functions: a `Marked`."""

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
Row_contra = TypeVar("Row_contra", contravariant=True)
Result_co = TypeVar("Result_co", covariant=True)


class Array(Protocol):
    """An array of numpy, Arrow, polars or pandas, for type checkers."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __array__(self) -> Any:
        """Return the rows as an array of numpy."""
        ...


R_co = TypeVar("R_co", covariant=True)


class ColumnOf(Protocol[R_co]):
    """A list or an array as the result of a function, for type checkers."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, row: int, /) -> R_co:
        """Return the entry of a row: type checkers know it as Any in arrays."""
        ...


C = TypeVar("C", bound=Array)
D = TypeVar("D", bound=Array)


class Vectorized(Generic[Row_contra, Result_co]):
    """The type of a function on columns that `vectorized` or `model` marks, for type checkers.

    Its rows are values, or (key, value) tuples for a function that takes the keys first.
    """

    def __call__(self, *columns: Any) -> Any:
        """Return a column of results for columns of the same length."""
        raise NotImplementedError


class Marked:
    """What a mark says of its function.

    Args:
        columns: the columns that it takes; None for those of its annotations.
        result: the annotation of its result.
        batch_size: maximum number of rows in a call; None for no limit.
    """

    def __init__(
        self, columns: tuple[ColumnForm, ...] | None = None, result: Any = None, batch_size: int | None = None
    ) -> None:
        self.columns = columns
        self.result = result
        self.batch_size = batch_size


@overload
def vectorized(
    function: Callable[Concatenate[list[A], list[B], P], Awaitable[Sequence[R | Exception]]],
) -> Vectorized[tuple[A, B], R]: ...
@overload
def vectorized(
    function: Callable[Concatenate[list[A], P], Awaitable[Sequence[R | Exception]]],
) -> Vectorized[A, R]: ...
@overload
def vectorized(
    function: Callable[Concatenate[list[A], list[B], P], Sequence[R]],
) -> Vectorized[tuple[A, B], R]: ...
@overload
def vectorized(function: Callable[Concatenate[list[A], P], Sequence[R]]) -> Vectorized[A, R]: ...
@overload
def vectorized(function: Callable[[C], ColumnOf[R]]) -> Vectorized[Any, R]: ...
@overload
def vectorized(function: Callable[[C, D], ColumnOf[R]]) -> Vectorized[Any, R]: ...
def vectorized(function: Callable[..., Any]) -> Any:
    """Mark a function that takes lists as one that takes whole columns.

    Operators then call it once per batch with a list of values, or lists of keys and values, and use each entry of the
    list that it returns for one record. With `calls`, the batch has records that wait for their calls, and the function
    may be a coroutine function. Functions of arrays need no mark, but mypy needs it to know their types. The
    marked function is the function itself.

    Args:
        function: takes one list or array per parameter, and returns a list or an array of the same length.

    Raises:
        TypeError: it is not a Python function, or a parameter has no annotation, or that of a single value.
    """
    if not inspect.isfunction(function):
        raise TypeError(f"Expected a function for vectorized, got {function!r}: mark a function made with def.")
    for name, annotation in zip(*_annotations(function)[:2], strict=True):
        if annotation is inspect.Parameter.empty:
            raise TypeError(
                f"{function.__qualname__} has the mark of vectorized, but its parameter {name} has no annotation, so "
                f"its column is unknown: write {name}: list[float], for example, or the array that it takes."
            )
        check_is_column(
            annotation, f"{function.__qualname__} has the mark of vectorized, but its parameter {name} is annotated as"
        )
    setattr(function, MARK, Marked())
    return function


class ColumnFunction(ColumnCall):
    """A user's function on columns, which operators call like a function on rows.

    Args:
        function: the user's function.
        columns: the columns that it takes.
        result: the annotation of its result, None if it has none.
        batch_size: maximum number of rows in a call; None for no limit.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        columns: tuple[ColumnForm, ...],
        result: Any = None,
        batch_size: int | None = None,
    ) -> None:
        self.function = function
        self._columns = columns
        self.result = result
        self.batch_size = batch_size

    def __call__(self, *row: Any) -> Any:
        """Return the result for one row, from columns of length 1."""
        return self.call([(part,) for part in row])[0]

    def __repr__(self) -> str:
        return str(getattr(self.function, "__qualname__", None) or repr(self.function))

    @property
    def __signature__(self) -> inspect.Signature:
        """The signature of the user's function; AttributeError if it cannot be read."""
        marked = _mark_of(self.function).columns
        if marked:
            names = ("key", "value") if len(marked) == 2 else map("column{}".format, range(len(marked)))
            return inspect.Signature([inspect.Parameter(name, _POSITIONAL[0]) for name in names])
        signature = signature_of(self.function) if marked is None else None
        if signature is None:
            raise AttributeError("__signature__")
        return signature

    def knowing(self, key: type | None, value: type | None) -> ColumnFunction:
        """Return this function with the types of keys and values, where its annotations say nothing.

        An array of nulls alone has the type of its annotation, or else of these.
        """
        count = len(self._columns)
        known = [
            column._replace(element=column.element or element)
            for column, element in zip(self._columns, (key, value)[2 - count :], strict=count <= 2)
        ]
        return type(self)(self.function, tuple(known) if count <= 2 else self._columns, self.result, self.batch_size)

    def returning(self, result: Any) -> ColumnFunction:
        """Return this function with another annotation of its result."""
        return type(self)(self.function, self._columns, result, self.batch_size)

    def libraries(self, count: int) -> tuple[Library | None, ...]:
        """Return the libraries of the arrays from which the function takes its `count` columns; None for objects."""
        return tuple(LIBRARIES.get(column.form) for column in self._types(count))

    @property
    def takes_numpy(self) -> bool:
        """Whether a column that it takes is a numpy array."""
        return any(column.form is Form.NUMPY for column in self._columns)

    def call(self, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Return the results for all rows of `columns`.

        Raises:
            ColumnError: the function returns no column of the same length.
        """
        arguments = self.arguments(columns)
        returned = self.function(*arguments)
        for argument, form, column in zip(arguments, self._types(len(columns)), columns, strict=True):
            if returned is argument and form.form in (Form.ARROW, Form.POLARS):  # which cannot change
                return column
        return self.results(returned, len(columns[0]))

    def results(self, returned: Any, rows: int) -> Sequence[Any]:
        """Return the column that the function returned, as rows.

        Args:
            returned: the result of the function.
            rows: the number of rows that it received.

        Raises:
            ColumnError: it is no column of the same length.
        """
        results = column_in(returned)
        if results is None:
            raise ColumnError(
                f"{self!r} returned {returned!r:.100} of {type(returned).__name__} where a column of {rows} rows was "
                "expected: return a list, or an array of numpy, Arrow, polars or pandas."
            )
        if len(results) != rows:
            raise ColumnError(
                f"{self!r} returned a column of length {len(results)} where length {rows} was expected: return one "
                "result for each row, None for no value."
            )
        return results

    def arguments(self, columns: Sequence[Sequence[Any]]) -> list[Any]:
        """Return the arguments of the function for `columns`, each of its annotated form."""
        return [made(type, column) for type, column in zip(self._types(len(columns)), columns, strict=False)]

    def _types(self, count: int) -> list[ColumnForm]:
        """Return the types of `count` columns: a function without annotations takes lists."""
        return [*self._columns, *[LIST] * (count - len(self._columns))]


class ColumnAction(ColumnFunction):
    """A user's action on columns, whose result is ignored."""

    def call(self, columns: Sequence[Sequence[Any]]) -> Sequence[Any]:
        """Call the action; returns None for each row."""
        self.function(*self.arguments(columns))
        return [None] * len(columns[0])

    def results(self, returned: Any, rows: int) -> Sequence[Any]:
        """Return a result for each row, None if the action returned nothing; raises ColumnError for other columns."""
        return [None] * rows if returned is None else super().results(returned, rows)


def column_function(function: Any, make: type[ColumnFunction] = ColumnFunction) -> ColumnFunction | None:
    """Return a user's function on columns, made by `make`; None for a function on rows.

    Raises:
        TypeError: only some of its parameters are columns, or one is a ChunkedArray.
    """
    if isinstance(function, ColumnFunction) or not callable(function) or isinstance(function, type):
        return None
    mark = _mark_of(function)
    if mark.columns is not None:
        return make(function, mark.columns, mark.result, mark.batch_size)
    names, annotations, result = _annotations(function)
    if has_mark(function):
        return make(function, tuple(map(list_form, annotations)), result)
    columns = [column_form(annotation) for annotation in annotations]
    found = [column for column in columns if column is not None]
    if len(found) == len(columns):
        return make(function, tuple(found), result) if found else None
    unknown = [name for name, each in zip(names, annotations, strict=True) if each is inspect.Parameter.empty]
    if found and unknown:
        raise TypeError(
            f"{getattr(function, '__qualname__', function)!s} takes a column, but its parameter {unknown[0]} has no "
            f"annotation: annotate it as a column too, such as {unknown[0]}: {found[0].form.value}."
        )
    return None


def check_not_mixed(function: Any) -> None:
    """Raise TypeError if a function takes some parameters as columns by their annotations, and others as single values.

    For operators that take functions on columns: there, such a function would be called for each record, with single
    values in place of columns.
    """
    if not callable(function) or isinstance(function, type) or has_mark(function):
        return
    names, annotations, _ = _annotations(function)
    columns = {name: form for name, each in zip(names, annotations, strict=True) if (form := column_form(each))}
    if columns and len(columns) < len(names):
        (name, form), other = next(iter(columns.items())), next(each for each in names if each not in columns)
        raise TypeError(
            f"{getattr(function, '__qualname__', function)!s} takes a column, {name}, and a single value, {other}: "
            f"annotate {other} as a column too, such as {other}: {form.form.value}. If the values of the stream are "
            "such arrays, annotate neither."
        )


def takes_columns_only(function: Callable[..., Any]) -> bool:
    """Return whether `function` cannot be one on rows: it has a mark, or its arrays are never single values.

    A value may be a numpy array, so such annotations do not count.
    """
    if has_mark(function):
        return True
    found = column_function(function)
    return found is not None and not found.takes_numpy


def result_of(function: ColumnFunction) -> Any:
    """Return the type of an entry of the function's result, None if unknown."""
    return None if function.result is None else list_form(function.result).element


def result_annotation(function: Callable[..., Any]) -> Any:
    """Return the annotation of the result of a function, None if it has none."""
    return _annotations(function)[2]


def has_mark(function: object) -> bool:
    """Return whether a function is marked as one on columns, by `vectorized` or `model`."""
    return getattr(function, MARK, None) is not None  # attributes are how Python functions are marked


def _mark_of(function: Callable[..., Any]) -> Marked:
    mark = getattr(function, MARK, None)
    return mark if isinstance(mark, Marked) else Marked()


def _annotations(function: Callable[..., Any]) -> tuple[list[str], list[Any], Any]:
    """Return names and annotations of the required parameters, and the annotation of the result.

    An annotation that cannot be evaluated is a text.
    """
    signature = signature_of(function)
    if signature is None:
        return [], [], None
    scope = _scope(function)
    required = [p for p in signature.parameters.values() if p.kind in _POSITIONAL and p.default is p.empty]
    result = _evaluated(signature.return_annotation, scope)
    found = [_evaluated(each.annotation, scope) for each in required]
    return [each.name for each in required], found, None if result is inspect.Signature.empty else result


def _scope(function: Any) -> dict[str, Any]:
    called: Any = inspect.unwrap(function)
    while isinstance(called, partial):
        called = called.func
    called = called if inspect.isroutine(called) else type(called).__call__
    scope: dict[str, Any] = getattr(inspect.unwrap(called), "__globals__", {})  # built-ins have no globals
    return scope


def _evaluated(annotation: Any, scope: dict[str, Any]) -> Any:
    text = getattr(annotation, "__forward_arg__", annotation)  # Python 3.14 wraps names that it does not know
    if not isinstance(text, str):
        return annotation
    try:
        return eval(text, scope)  # as typing.get_type_hints does
    except Exception:  # a name that exists only for type checkers
        return text
