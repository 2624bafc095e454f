"""Columns in the forms that users' functions take: lists, and arrays of numpy, Arrow, polars and pandas.

A row has the same value in each form, and None is the null of the form. No array library is loaded before a function
needs it, and none but numpy is a dependency.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from penstock.errors import StreamsError
from penstock.extras import load, load_package
from penstock.record import ArrayColumn, Int64Array, rows_of
from penstock.serdes.api import Library

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_NEEDED_FOR = "A function on columns"

_OPEN: Final = ("typing", "typing_extensions", "types", "collections.abc")
"""The modules of annotations that a list may fit."""


class Form(Enum):
    """The form in which a function takes a column."""

    LIST = "list"
    NUMPY = "numpy.ndarray"
    ARROW = "pyarrow.Array"
    POLARS = "polars.Series"
    PANDAS = "pandas.Series"


LIBRARIES: Final[Mapping[Form, Library]] = {
    Form.NUMPY: "numpy",
    Form.PANDAS: "numpy",
    Form.POLARS: "numpy",
    Form.ARROW: "pyarrow",
}
"""The library in whose arrays serdes hand over columns for each form; a list is no array."""


class ColumnForm(NamedTuple):
    """The type of a column.

    Args:
        form: its form.
        element: the type of its entries; None if unknown.
        dtype: the dtype of a numpy array; None for that of the entries.
    """

    form: Form
    element: Any = None
    dtype: str | None = None


LIST = ColumnForm(Form.LIST)

_CLASSES: Final[Mapping[tuple[str, str], Form]] = {
    ("numpy", "ndarray"): Form.NUMPY,
    ("pyarrow", "Array"): Form.ARROW,
    ("polars", "Series"): Form.POLARS,
    ("pandas", "Series"): Form.PANDAS,
}
"""Package and class of each form, so that no package is loaded to know its classes."""

_WRITTEN: Final[Mapping[Form, re.Pattern[str]]] = {
    Form.NUMPY: re.compile(r"(np|numpy)\.ndarray\b|(npt|np\.typing|numpy\.typing)\.NDArray\b"),
    Form.ARROW: re.compile(r"(pa|pyarrow)\.\w*Array\b"),
    Form.POLARS: re.compile(r"(pl|polars)\.Series\b"),
    Form.PANDAS: re.compile(r"(pd|pandas)\.Series\b"),
}
"""Annotations by their usual names, for names that exist for type checkers only."""

_CHUNKED = re.compile(r"(pa|pyarrow)\.ChunkedArray\b")

_ARROW_ELEMENTS: Final[tuple[tuple[re.Pattern[str], type], ...]] = (
    (re.compile(r"(Large)?StringArray|StringViewArray"), str),
    (re.compile(r"(Large)?BinaryArray|BinaryViewArray"), bytes),
    (re.compile(r"U?Int(8|16|32|64)Array"), int),
    (re.compile(r"(HalfFloat|Float|Double)Array"), float),
    (re.compile(r"BooleanArray"), bool),
)

_DTYPES: Final[Mapping[type, type]] = {float: np.float64, int: np.int64, bool: np.bool_}
"""The dtypes of columns whose entries are of one type."""

_MASKED: Final[Mapping[type, str]] = {float: "Float64", int: "Int64", bool: "boolean"}
"""The dtypes of pandas for such entries and nulls."""


def column_form(annotation: Any) -> ColumnForm | None:
    """Return the type of the column that `annotation` names; None for any other annotation, and for lists.

    Raises:
        TypeError: it is a ChunkedArray of Arrow.
    """
    if isinstance(annotation, str):
        return _written_type(annotation)
    kind = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type):
        return None
    form = _form_of(kind)
    if form is Form.ARROW:
        return ColumnForm(form, _arrow_element(kind.__name__))
    if form is Form.NUMPY:
        scalar = _scalar(annotation)
        return ColumnForm(form) if scalar is None else ColumnForm(form, _element_of(scalar), np.dtype(scalar).str)
    return None if form is None else ColumnForm(form)


def list_form(annotation: Any) -> ColumnForm:
    """Return the type of a column that `annotation` names, of a list for any other annotation."""
    arguments = typing.get_args(annotation)
    return column_form(annotation) or ColumnForm(Form.LIST, arguments[0] if len(arguments) == 1 else None)


def check_is_column(annotation: Any, what: str) -> None:
    """Raise TypeError if `annotation` names a class that is no column, such as dict or str.

    what: the words for what has the annotation, up to its name.
    """
    kind = typing.get_origin(annotation) or annotation
    if not isinstance(kind, type) or kind is object or issubclass(kind, list | tuple):
        return
    is_open = typing.Protocol in kind.__mro__ or kind.__module__ in _OPEN  # as Any, Sequence and unions are
    if is_open or column_form(annotation) is not None:
        return
    name = inspect.formatannotation(annotation)
    raise TypeError(
        f"{what} {name}, which is a single value: a column is a list, or an array of numpy, Arrow, polars or pandas. "
        f"Write list[{name}], for example."
    )


def made(column: ColumnForm, rows: Sequence[Any]) -> Any:
    """Return `rows` in the form of `column`, as an object of its own.

    Raises any error of the library for rows that it cannot take.
    """
    return _MAKERS[column.form](rows, column)


def column_in(result: Any) -> Sequence[Any] | None:
    """Return a column of any form, which a function returned, as rows; None if it is no column.

    Where rows need not be objects, they stay an array.
    """
    if isinstance(result, list | tuple):
        return list(result)
    if isinstance(result, np.ndarray):
        return _of_numpy(result)
    match _form_of(type(result)):
        case Form.ARROW:
            array = _canonical(result)
            return result.to_pylist() if array is None else ArrayColumn(array, array.null_count > 0)
        case Form.POLARS:
            return _of_polars(result)
        case Form.PANDAS:
            return _of_pandas(result)
        case _:
            return None


def items_in(lists: Sequence[Any]) -> tuple[ArrayColumn[Any], Int64Array] | None:
    """Return the items of all lists of an array, and the length of each; None for other columns.

    The array has no null.
    """
    if not isinstance(lists, ArrayColumn) or isinstance(lists.array, np.ndarray) or not _is_list(lists.array.type):
        return None
    items = lists.array.flatten()
    lengths: Int64Array = lists.array.value_lengths().to_numpy().astype(np.int64)
    return ArrayColumn(items, items.null_count > 0), lengths


def _form_of(kind: type) -> Form | None:
    """Return the form of a class, which may be a subclass; raises TypeError for a ChunkedArray."""
    for base in kind.__mro__:
        package = base.__module__.partition(".")[0]
        if (package, base.__name__) == ("pyarrow", "ChunkedArray"):
            raise _chunked()
        if (form := _CLASSES.get((package, base.__name__))) is not None:
            return form
    return None


def _written_type(annotation: str) -> ColumnForm | None:
    text = annotation.strip()
    if _CHUNKED.match(text):
        raise _chunked()
    form = next((form for form, pattern in _WRITTEN.items() if pattern.match(text)), None)
    if form is Form.ARROW:
        return ColumnForm(form, _arrow_element(text.rpartition(".")[2]))
    return None if form is None else ColumnForm(form)


def _chunked() -> TypeError:
    return TypeError("A column is one pyarrow.Array, not a ChunkedArray: call combine_chunks() for one array.")


def _arrow_element(name: str) -> type | None:
    return next((element for pattern, element in _ARROW_ELEMENTS if pattern.fullmatch(name)), None)


def _scalar(annotation: Any) -> type[np.generic] | None:
    """Return the scalar type of an annotation such as npt.NDArray[np.float64], or None."""
    arguments = typing.get_args(annotation)
    scalars = typing.get_args(arguments[1]) if len(arguments) == 2 else ()
    scalar = scalars[0] if scalars else None
    is_one = isinstance(scalar, type) and issubclass(scalar, np.number | np.bool_)
    return scalar if is_one and scalar not in (np.number, np.floating, np.integer) else None


def _element_of(scalar: type[np.generic]) -> type | None:
    kinds = {"f": float, "i": int, "u": int, "b": bool}
    return kinds.get(np.dtype(scalar).kind)


# ---------------------------------------- from rows and arrays


def _list(rows: Sequence[Any], column: ColumnForm) -> list[Any]:
    return list(rows)  # a copy: the function may change it


def _numpy(rows: Sequence[Any], column: ColumnForm) -> npt.NDArray[Any]:
    if isinstance(rows, ArrayColumn) and (array := _numbers_of(rows)) is not None:
        return array.astype(array.dtype if column.dtype is None else column.dtype)
    if column.dtype is not None:
        return np.array(rows, column.dtype)
    kinds = set(map(type, rows))
    dtype = _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None
    if dtype is not None:
        try:
            return np.array(rows, dtype)
        except OverflowError:  # an int of more than 64 bits
            pass
    return np.fromiter(rows, object, len(rows))


def _arrow(rows: Sequence[Any], column: ColumnForm) -> Any:
    pa = load("pyarrow", _NEEDED_FOR)
    if isinstance(rows, ArrayColumn) and not (rows.may_have_null and rows.array.null_count == len(rows)):
        return pa.array(rows.array) if isinstance(rows.array, np.ndarray) else rows.array
    array = pa.array(_plain(rows))
    if not isinstance(array, pa.Array):
        raise StreamsError(f"A column of {len(rows)} rows has more bytes than one array of Arrow can have: 2 GiB.")
    types: dict[Any, Callable[[], Any]] = {
        str: pa.string,
        bytes: pa.binary,
        int: pa.int64,
        float: pa.float64,
        bool: pa.bool_,
    }
    if pa.types.is_null(array.type) and (of_element := types.get(column.element)) is not None:
        return array.cast(of_element())
    return array


def _polars(rows: Sequence[Any], column: ColumnForm) -> Any:
    pl: ModuleType = load_package("polars", _NEEDED_FOR)
    if isinstance(rows, ArrayColumn) and not (rows.may_have_null and rows.array.null_count == len(rows)):
        return pl.Series(rows.array.copy()) if isinstance(rows.array, np.ndarray) else pl.from_arrow(rows.array)
    series = pl.Series(_plain(rows))
    types = {str: pl.String, bytes: pl.Binary, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}
    if series.dtype == pl.Null and (of_element := types.get(column.element)) is not None:
        return series.cast(of_element)
    return series


def _pandas(rows: Sequence[Any], column: ColumnForm) -> Any:
    pd = load_package("pandas", _NEEDED_FOR)
    if isinstance(rows, ArrayColumn) and (array := _numbers_of(rows)) is not None:
        return pd.Series(array.copy())
    kinds = set(map(type, rows))
    masked = _MASKED.get(next(iter(kinds - {type(None)}))) if len(kinds) == 2 and type(None) in kinds else None
    if masked is not None:  # a null is another thing than NaN
        try:
            return pd.Series(pd.array(rows, dtype=masked) if masked != "Float64" else _masked_floats(pd, rows))
        except OverflowError:  # an int of more than 64 bits
            pass
    array = _numpy(rows, column)
    return pd.Series(array, dtype=array.dtype)


def _masked_floats(pd: ModuleType, rows: Sequence[Any]) -> Any:
    """Return floats with nulls as an array; pandas.array would take a NaN for a null."""
    nulls = np.fromiter((row is None for row in rows), np.bool_, len(rows))
    return pd.arrays.FloatingArray(np.array([0.0 if row is None else row for row in rows], np.float64), nulls)


def _plain(rows: Sequence[Any]) -> Sequence[Any]:
    """Return rows with dicts instead of dataclass objects: structs, in arrays."""
    if not any(map(dataclasses.is_dataclass, set(map(type, rows)))):
        return rows_of(rows)
    return [dataclasses.asdict(row) if _is_object(row) else row for row in rows]


def _is_object(row: Any) -> TypeGuard[DataclassInstance]:
    return dataclasses.is_dataclass(row) and not isinstance(row, type)


_MAKERS: Final[Mapping[Form, Callable[[Sequence[Any], ColumnForm], Any]]] = {
    Form.LIST: _list,
    Form.NUMPY: _numpy,
    Form.ARROW: _arrow,
    Form.POLARS: _polars,
    Form.PANDAS: _pandas,
}


# ---------------------------------------- to rows and arrays

_NUMBERS: Final[Mapping[str, str]] = {"f": "f8", "i": "i8", "u": "i8", "b": "?"}
"""The dtype whose rows are the same objects, by the kind of a dtype."""

_ARROW_TYPES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("halffloat", "float", "double"), "double"),
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"), "int64"),
    **dict.fromkeys(("string", "large_string", "string_view"), "string"),
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "binary"),
    "bool": "bool",
}
"""The type of Arrow that the same rows have when they come from objects, by the name of a type."""


def _of_numpy(array: npt.NDArray[Any]) -> Sequence[Any] | None:
    """Return an array as rows, or as an array of its own: the function may change its array."""
    if not array.ndim:
        return None
    dtype = _NUMBERS.get(array.dtype.kind)
    if dtype is not None and array.ndim == 1 and array.dtype.itemsize <= 8 and array.dtype != np.uint64:
        return ArrayColumn(array.astype(dtype))
    rows: list[Any] = array.tolist()
    return rows


def _of_polars(series: Any) -> Sequence[Any] | None:
    if series.dtype.is_numeric() and not series.null_count() and not series.dtype.is_decimal():
        return _of_numpy(series.to_numpy())
    rows: list[Any] = series.to_list()
    return rows


def _of_pandas(series: Any) -> Sequence[Any] | None:
    """Return a series as rows: its nulls are None.

    A NaN is a number in a column of floats, and a null among objects, such as texts.
    """
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "fiub":
        return _of_numpy(series.to_numpy())
    pd = load_package("pandas", _NEEDED_FOR)
    objects = isinstance(series.dtype, np.dtype) and series.dtype.kind == "O"
    return [None if row is pd.NA or row is pd.NaT or (objects and row != row) else row for row in series.tolist()]


def _canonical(array: Any) -> Any:
    """Return an array of Arrow with the type that its rows would have; None if that is not certain.

    So it does not matter whether the next function takes the rows or the array.
    """
    wanted = _ARROW_TYPES.get(str(array.type))
    if wanted is not None:
        return array if str(array.type) == wanted else array.cast(wanted)
    if _is_list(array.type) and (items := _ARROW_TYPES.get(str(array.type.value_type))) is not None:
        pa = load("pyarrow", _NEEDED_FOR)
        return array.cast(pa.list_(pa.type_for_alias(items)))
    return None


def _is_list(type: Any) -> bool:
    return str(type).startswith(("list<", "large_list<"))


def _numbers_of(column: ArrayColumn[Any]) -> npt.NDArray[Any] | None:
    """Return an array of numbers or booleans without nulls as one of numpy; None for others."""
    array = column.array
    if isinstance(array, np.ndarray):
        return array
    if str(array.type) in ("double", "int64", "bool") and not array.null_count:
        numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return numbers
    return None
