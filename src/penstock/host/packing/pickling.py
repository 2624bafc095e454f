"""Pickles user code: by name if importable, by value otherwise or on request.

It extends cloudpickle: cached functions (`functools.lru_cache`) are pickled by value whenever their modules are, while
cloudpickle considers them importable everywhere; modules pickled by value may refer to one another; msgspec's cache in
classes is not pickled; and a field of a dataclass without a default has no default in the copy either.
"""

from __future__ import annotations

import builtins
import io
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING
from functools import _lru_cache_wrapper, lru_cache, partial
from hashlib import blake2b
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from weakref import WeakSet

import cloudpickle

_OF_IMPORT = frozenset(("__builtins__", "__loader__", "__spec__"))
"""Attributes of a module that importing sets."""

_SAID_BY_CODE = (
    "co_code", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_name", "co_flags", "co_argcount",
    "co_posonlyargcount", "co_kwonlyargcount", "co_exceptiontable",
)  # fmt: skip
"""Attributes of code without its location in a file."""

_KEPT_BY_MSGSPEC = "__msgspec_cache__"
"""msgspec's cache in a decoded dataclass, NamedTuple or TypedDict.

It cannot be pickled, and each process creates it when needed.
"""

_OF_CLASS_OBJECTS = frozenset(
    ("__dict__", "__weakref__", "__firstlineno__", "__static_attributes__", "_abc_impl", _KEPT_BY_MSGSPEC)
)
"""Attributes of a class that its creation sets, or that libraries keep in it."""

_MADE_BY_PYTHON = 1 << 9
"""A flag of classes: Py_TPFLAGS_HEAPTYPE."""

_by_value_before: WeakSet[ModuleType] = WeakSet()
"""Modules received by value: a different module of the same name may be importable."""

_registering = threading.Lock()  # the registry of modules by value is global in the process


class ByValueError(Exception):
    """Functions of these modules cannot be pickled by value.

    Args:
        modules: the names of the modules.
        error: the error of pickling.
    """

    def __init__(self, modules: list[str], error: Exception) -> None:
        super().__init__(str(error))
        self.modules = modules


def dump(value: Any) -> bytes:
    """Return `value` as bytes for `cloudpickle.loads`; raises any error of its objects' own pickling."""
    return _dump(value, set())


def digest_of(value: Any, digest_size: int) -> str:
    """Return a digest (hexadecimal) of `value`, the same in each process for the same program.

    The result of `dump` differs between processes in three respects, which are omitted or ordered here: cloudpickle's
    random names of classes pickled by value, the order of sets among the constants of a function, and the locations of
    functions in their files. Other sets that a function refers to, as a global or in a closure, still differ. Raises
    any error of the objects' own pickling.
    """
    with io.BytesIO() as file:
        _DigestPickler(file, set()).dump(value)
        return blake2b(file.getvalue(), digest_size=digest_size).hexdigest()


def dump_by_value(value: Any, modules: Iterable[ModuleType]) -> bytes:
    """Like `dump`, with functions and classes of `modules` by value.

    The loaded object is independent of later changes to the modules.

    Raises:
        ByValueError: one of the modules has objects that cannot be pickled.
    """
    by_name = {module.__name__: module for module in modules}
    met: set[str] = set()
    try:
        with _by_value(by_name.values()):
            return _dump(value, met)
    except Exception as error:  # any error from an object's own pickling
        suspects = sorted(met & by_name.keys())
        raise ByValueError([each for each in suspects if not _goes(value, by_name[each])] or suspects, error) from error


def _goes(value: Any, module: ModuleType) -> bool:
    try:
        with _by_value([module]):
            _dump(value, set())
    except Exception:  # as above
        return False
    return True


@contextmanager
def _by_value(modules: Iterable[ModuleType]) -> Iterator[None]:
    with _registering:
        known = cloudpickle.list_registry_pickle_by_value()
        added = [module for module in modules if module.__name__ not in known]
        for module in added:
            cloudpickle.register_pickle_by_value(module)
        try:
            yield
        finally:
            for module in added:
                cloudpickle.unregister_pickle_by_value(module)


def what_cannot_go(value: Any) -> str:
    """Return a description of the object in `value` that cannot be pickled.

    It names the innermost function that refers to the object, with file and line, and its variable and attributes.
    """
    function, path, seen = "", "", set()
    while id(value) not in seen:
        seen.add(id(value))
        if isinstance(value, FunctionType):
            code = value.__code__
            function, path = f"function {value.__qualname__} ({code.co_filename}:{code.co_firstlineno})", ""
        elif isinstance(value, type) and not function:
            function = f"class {value.__qualname__}"
        part = next(((name, part) for name, part in _parts(value) if not can_go(part)), None)
        if part is None:
            break
        path, value = path + part[0], part[1]
    found = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if not function:
        return f"what cannot be pickled is of type {found}{f', at {path}' if path else ''}"
    return f"{function} refers to `{path.removeprefix('.')}`, which is of type {found}" if path else function


def can_go(value: Any) -> bool:
    """Return whether `value` can be pickled."""
    try:
        dump(value)
    except Exception:  # any error from an object's own pickling
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the parts and references of `value`, each with its path as source text."""
    match value:
        case FunctionType():
            yield from ((f".{name}", part) for name, part in _named_parts(value))
        case MethodType():
            yield "", value.__func__
            yield "", value.__self__
        case partial():
            yield "", value.func
            yield from (("", argument) for argument in value.args)
            yield from ((f".{name}", argument) for name, argument in value.keywords.items())
        case staticmethod() | classmethod():
            yield "", value.__func__
        case _lru_cache_wrapper():
            yield "", value.__wrapped__
        case Mapping():
            yield from ((f"[{key!r:.40}]", part) for key, part in value.items())
        case list() | tuple() | set() | frozenset():
            yield from ((f"[{place}]", part) for place, part in enumerate(value))
        case type():
            yield from ((f".{name}", part) for name, part in vars(value).items() if name not in _OF_CLASS_OBJECTS)
        case _:
            yield from ((f".{name}", part) for name, part in getattr(value, "__dict__", {}).items())
            yield "", type(value)


def _named_parts(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the objects that `function` refers to, by name: of enclosing functions, globals and defaults."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # an empty cell
            yield name, cell.cell_contents
    yield from ((name, function.__globals__[name]) for name in _names_in(code) if name in function.__globals__)
    yield from zip(code.co_varnames[: code.co_argcount][::-1], (function.__defaults__ or ())[::-1], strict=False)
    yield from (function.__kwdefaults__ or {}).items()


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the global names in `code` and its nested functions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _dump(value: Any, met: set[str]) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, met).dump(value)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Collects the modules of the functions and classes that it pickles.

    Args:
        file: receives the pickle.
        met: receives the names of the modules.
    """

    def __init__(self, file: io.BytesIO, met: set[str]) -> None:
        super().__init__(file)
        self._met = met

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, FunctionType | type):
            self._met.add(str(obj.__module__))
        elif isinstance(obj, ModuleType):
            self._met.add(obj.__name__)
            if obj in _by_value_before or _goes_by_value(obj.__name__):
                content = {name: value for name, value in vars(obj).items() if name not in _OF_IMPORT}
                return ModuleType, (obj.__name__,), content, None, None, _fill
        elif isinstance(obj, _lru_cache_wrapper) and not _is_imported(obj):
            return _with_cache, (obj.__wrapped__, dict(obj.cache_parameters()))
        elif obj is MISSING:
            return "MISSING"  # the name in its module: for msgspec, a copy of it is a default like any other object
        elif isinstance(obj, CodeType):  # cloudpickle omits the file since 3.1.3, but tracebacks and debuggers need it
            return _code_in, (obj.co_filename, *self.dispatch_table[CodeType](obj))
        reduced = super().reducer_override(obj)
        if isinstance(obj, type) and _KEPT_BY_MSGSPEC in vars(obj) and isinstance(reduced, tuple):
            attributes, _ = reduced[2]  # by value: attributes and slots of the class
            attributes.pop(_KEPT_BY_MSGSPEC, None)
        return reduced


class _DigestPickler(_Pickler):
    """Writes a pickle for digests only: classes and code by content, without differences between processes."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, CodeType):
            return _Said, ("code",), (_ordered(obj.co_consts), *(getattr(obj, name) for name in _SAID_BY_CODE))
        if isinstance(obj, type) and not _is_importable(obj):
            content = {
                name: value
                for name, value in vars(obj).items()
                if name not in _OF_CLASS_OBJECTS and not isinstance(value, MemberDescriptorType | GetSetDescriptorType)
            }
            return _Said, (f"class {obj.__qualname__}",), (obj.__bases__, content)
        return super().reducer_override(obj)


class _Said:
    """A placeholder in a digest for an object of this name.

    Args:
        name: the name of the object.
    """

    def __init__(self, name: str) -> None:
        self.name = name


def _ordered(constants: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(("set", sorted(map(repr, each))) if isinstance(each, frozenset) else each for each in constants)


def _is_importable(cls: type) -> bool:
    """Return whether importing the module of `cls` provides it, as for all C classes."""
    if not cls.__flags__ & _MADE_BY_PYTHON:
        return True
    if cls.__module__ == "__main__" or _goes_by_value(cls.__module__):
        return False
    found: Any = sys.modules.get(cls.__module__)
    for part in cls.__qualname__.split("."):
        found = None if found is None else vars(found).get(part)
    return found is cls


def _with_cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    cached: Callable[..., Any] = lru_cache(**parameters)(function)
    return cached


def _code_in(filename: str, make: Callable[..., CodeType], parts: tuple[object, ...]) -> CodeType:
    return make(*parts).replace(co_filename=filename)


def _fill(module: ModuleType, content: dict[str, Any]) -> None:
    vars(module).update(content, __builtins__=builtins)
    _by_value_before.add(module)


def _goes_by_value(name: str) -> bool:
    """Return whether the module `name`, or one of its packages, is pickled by value."""
    packages = {name.rsplit(".", drop)[0] for drop in range(name.count(".") + 1)}
    return not packages.isdisjoint(cloudpickle.list_registry_pickle_by_value())


def _is_imported(function: Any) -> bool:
    """Return whether importing the module of `function` provides it. Modules pickled by value do not count."""
    name = str(function.__module__)
    if name == "__main__" or _goes_by_value(name):
        return False
    found: Any = sys.modules.get(name)
    for part in function.__qualname__.split("."):
        found = None if found is None else vars(found).get(part)
    return found is function
