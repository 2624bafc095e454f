"""Models: functions on columns that a factory makes once in each process.

A model of the same factory is the same in all tasks of a process, also if each task has unpickled it: a program whose
module a worker cannot import sends its functions by value. A model stays until the process ends.
"""

from __future__ import annotations

import hashlib
import inspect
import typing
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import update_wrapper
from threading import Lock
from typing import Any, Final, Protocol, TypeVar, overload

import cloudpickle

from penstock.processor.arrays import check_is_column, list_form
from penstock.processor.column_functions import (
    MARK,
    Array,
    ColumnOf,
    Marked,
    Vectorized,
    result_annotation,
)
from penstock.processor.columns import ColumnError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C", bound=Array)
D = TypeVar("D", bound=Array)
R = TypeVar("R")

_AWAITABLES: Final = (Awaitable, Coroutine)

_MOST_MODELS: Final = 64
"""Maximum number of models that a process keeps for later tasks; the one that was used first goes first."""


class MakesModel(Protocol):
    """The decorator that `model` returns, for type checkers."""

    @overload
    def __call__(self, factory: Callable[[], Callable[[list[A]], Sequence[R]]]) -> Vectorized[A, R]: ...
    @overload
    def __call__(
        self, factory: Callable[[], Callable[[list[A], list[B]], Sequence[R]]]
    ) -> Vectorized[tuple[A, B], R]: ...
    @overload
    def __call__(
        self, factory: Callable[[], Callable[[list[A]], Awaitable[Sequence[R | Exception]]]]
    ) -> Vectorized[A, R]: ...
    @overload
    def __call__(
        self, factory: Callable[[], Callable[[list[A], list[B]], Awaitable[Sequence[R | Exception]]]]
    ) -> Vectorized[tuple[A, B], R]: ...
    @overload
    def __call__(self, factory: Callable[[], Callable[[C], ColumnOf[R]]]) -> Vectorized[Any, R]: ...
    @overload
    def __call__(self, factory: Callable[[], Callable[[C, D], ColumnOf[R]]]) -> Vectorized[Any, R]: ...


def model(factory: None = None, /, *, batch_size: int = 64) -> MakesModel:
    """Return a decorator for a factory of a function on columns, such as one that loads a model.

    The factory runs when the first record arrives, once in each process, whatever its number of tasks. Operators then
    call the function that it returned with lists of values, or lists of keys and values, or with the arrays that the
    return annotation of the factory names: `Callable[[np.ndarray], np.ndarray]`. With `calls`, it may return a
    coroutine function, as the annotation `Callable[[list[Order]], Awaitable[list[float]]]` says.

    Args:
        batch_size: maximum number of rows in a call.

    Raises:
        TypeError: `batch_size` is not a whole number, the parentheses are missing, or a thing is decorated that is not
            a Python function, or its annotation says that the function takes single values.
        ValueError: `batch_size` is less than 1.
    """
    given: object = factory
    if given is not None:
        name = getattr(given, "__name__", repr(given))
        raise TypeError(f"model returns the decorator of {name}: write @model() with parentheses, above its def.")
    size = _checked(batch_size)

    def decorated(factory: Any) -> Any:
        if not inspect.isfunction(factory) or inspect.iscoroutinefunction(factory):
            raise TypeError(f"Expected a function for model, got {factory!r}: decorate a factory made with def.")
        arguments = typing.get_args(result_annotation(factory))
        taken = arguments[0] if len(arguments) == 2 and isinstance(arguments[0], list) else []
        for annotation in taken:
            check_is_column(annotation, f"The model {factory.__qualname__} is annotated to take")
        result = arguments[1] if len(arguments) == 2 else None
        call = _caller(_Loaded(factory, is_coroutine=typing.get_origin(result) in _AWAITABLES))
        update_wrapper(call, factory, ("__module__", "__name__", "__qualname__", "__doc__"), ())
        vars(call).pop("__wrapped__")  # its parameters are not those of the factory
        setattr(call, MARK, Marked(tuple(map(list_form, taken)), result, size))
        return call

    return decorated


vars(model)["__signature__"] = inspect.Signature(  # without the parameter that is only for the message
    [inspect.Parameter("batch_size", inspect.Parameter.KEYWORD_ONLY, default=64, annotation=int)],
    return_annotation=MakesModel,
)


def _checked(batch_size: Any) -> int:
    if not isinstance(batch_size, int) or isinstance(batch_size, bool):
        raise TypeError(f"Expected batch_size of model as a whole number of rows, got {batch_size!r}.")
    if batch_size < 1:
        raise ValueError(f"Expected batch_size of model to be 1 or more, got {batch_size}.")
    return batch_size


def _caller(loaded: _Loaded) -> Callable[..., Any]:
    """Return a function that calls that of a model; a coroutine function if the model is one."""
    if loaded.is_coroutine:

        async def call_later(*columns: Any) -> Any:
            return await loaded.function()(*columns)

        return call_later

    def call(*columns: Any) -> Any:
        return loaded.function()(*columns)

    return call


class _Loaded:
    """The function of a model, which is made when it is first called.

    Args:
        factory: makes it.
        is_coroutine: whether it is a coroutine function.
    """

    def __init__(self, factory: Callable[[], Callable[..., Any]], *, is_coroutine: bool) -> None:
        self.is_coroutine = is_coroutine
        self._factory = factory
        self._function: Callable[..., Any] | None = None
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        return _shared, (self._factory, self.is_coroutine)

    def function(self) -> Callable[..., Any]:
        """Return the function, made by the first call; raises ColumnError if it cannot be made."""
        if self._function is None:
            with self._lock:  # tasks of several threads may call at the same time
                if self._function is None:
                    self._function = self._made()
        return self._function

    def _made(self) -> Callable[..., Any]:
        name = self._factory.__qualname__
        try:
            made: Any = self._factory()
        except Exception as error:
            raise ColumnError(f"The factory of the model {name} failed ({type(error).__name__}: {error}).") from error
        if not callable(made) or inspect.iscoroutinefunction(made) != self.is_coroutine:
            wanted = (
                "a coroutine function on columns was expected: return a function made with `async def`."
                if self.is_coroutine
                else "a function on columns was expected: return a function made with def, or a bound method, such as "
                "estimator.predict. A model for Calls may return a coroutine function, and then its factory has the "
                "annotation Callable[[list[Order]], Awaitable[list[float]]], for example."
            )
            raise ColumnError(f"The factory of the model {name} returned {made!r:.100} where {wanted}")
        function: Callable[..., Any] = made
        return function


_models: OrderedDict[bytes, _Loaded] = OrderedDict()
_models_lock = Lock()


def _shared(factory: Callable[[], Callable[..., Any]], is_coroutine: bool = False) -> _Loaded:
    """Return the model of an unpickled factory: that of an equal one, if this process has it.

    The default is for what versions after 0.2.0 and before this one have pickled.
    """
    digest = hashlib.sha256(cloudpickle.dumps(factory)).digest()
    with _models_lock:
        found = _models.setdefault(digest, _Loaded(factory, is_coroutine=is_coroutine))
        if len(_models) > _MOST_MODELS:
            _models.popitem(last=False)
    return found
