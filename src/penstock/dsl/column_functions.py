"""Functions on columns as arguments of operators: their types for type checkers, and their results' serdes.

mypy knows functions of arrays only with the mark of `vectorized`, or where it does not know the values of the stream.
"""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any, Never, Protocol, TypeVar

from penstock.processor.column_functions import (
    Array,
    ColumnFunction,
    ColumnOf,
    check_not_mixed,
    column_function,
    result_of,
)
from penstock.serdes import Serde
from penstock.serdes.annotated import serde_of_annotation, serde_of_items, serde_of_result
from penstock.serdes.format import read_type

C = TypeVar("C", bound=Array)
"""The array of keys, or of values, that a function takes."""

D = TypeVar("D", bound=Array)
"""The array of values that a function takes after that of the keys."""

C_contra = TypeVar("C_contra", bound=Array, contravariant=True)
D_contra = TypeVar("D_contra", bound=Array, contravariant=True)
R_co = TypeVar("R_co", covariant=True)


MYPY = False
"""True for mypy alone."""

if MYPY:

    class ArrayMapper(Protocol[C_contra, R_co]):
        """Fits no function: mypy would not know which of two overloads a lambda fits, and infer Any."""

        no_function_has_this: Never

        def __call__(self, values: C_contra, /) -> ColumnOf[R_co]:
            """Return a column of the same length."""
            ...

    class ArrayFunction(Protocol[C_contra, D_contra, R_co]):
        """Fits no function, as above."""

        no_function_has_this: Never

        def __call__(self, keys: C_contra, values: D_contra, /) -> ColumnOf[R_co]:
            """Return a column of the same length."""
            ...

else:

    class ArrayMapper(Protocol[C_contra, R_co]):
        """A function of an array of values, for type checkers."""

        def __call__(self, values: C_contra, /) -> ColumnOf[R_co]:
            """Return a column of the same length."""
            ...

    class ArrayFunction(Protocol[C_contra, D_contra, R_co]):
        """A function of an array of keys and an array of values, for type checkers."""

        def __call__(self, keys: C_contra, values: D_contra, /) -> ColumnOf[R_co]:
            """Return a column of the same length."""
            ...


class ArrayAction(Protocol[C_contra, D_contra]):
    """An action on an array of keys and an array of values, for type checkers."""

    def __call__(self, keys: C_contra, values: D_contra, /) -> object:
        """Run the action."""
        ...


def on_columns(
    function: Callable[..., Any],
    key_serde: Serde | None,
    value_serde: Serde | None,
    make: type[ColumnFunction] = ColumnFunction,
) -> Callable[..., Any]:
    """Return a function on columns as operators call it, made by `make`; any other function itself.

    Args:
        function: the user's function.
        key_serde, value_serde: of the stream, for the types of arrays without a value.
        make: the class of the result.

    Raises:
        TypeError: only some of its parameters are columns, or one is a ChunkedArray.
    """
    found = column_function(function, make)
    if found is None:
        check_not_mixed(function)
    return function if found is None else found.knowing(_type(key_serde), _type(value_serde))


def result_serde(function: Callable[..., Any], *, is_key: bool = False) -> Serde | None:
    """Return the serde selected by the return annotation of a function on rows or columns, or None."""
    if isinstance(function, ColumnFunction):
        return serde_of_annotation(result_of(function), is_key=is_key)
    return serde_of_result(function, is_key=is_key)


def items_serde(function: Callable[..., Any]) -> Serde | None:
    """Return the serde of the values in the iterables that a function on rows or columns returns, or None."""
    if isinstance(function, ColumnFunction):
        arguments = typing.get_args(result_of(function))
        return serde_of_annotation(arguments[0]) if len(arguments) == 1 else None
    return serde_of_items(function)


def _type(serde: Serde | None) -> type | None:
    return None if serde is None else read_type(serde.with_defaults(None, None))
