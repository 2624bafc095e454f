"""Pickles what is the user's: by name what a process can import, by value the rest, or on request all of some modules.

As cloudpickle does; besides, functions with a cache (`functools.lru_cache`) go by value where their modules do, which
cloudpickle takes for something that everybody can import, and modules by value may refer to one another.
"""

from __future__ import annotations

import builtins
import io
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import _lru_cache_wrapper, lru_cache
from types import FunctionType, ModuleType
from typing import Any
from weakref import WeakSet

import cloudpickle

_OF_IMPORT = frozenset(("__builtins__", "__loader__", "__spec__"))
"""What a module has of the way in which it was imported."""

_by_value_before: WeakSet[ModuleType] = WeakSet()
"""Modules that came here by value: another one of that name may be importable."""

_registering = threading.Lock()  # what goes by value is one list for the process


class ByValueError(Exception):
    """Functions of these modules cannot be pickled by value."""

    def __init__(self, modules: list[str], error: Exception) -> None:
        super().__init__(str(error))
        self.modules = modules


def dump(value: Any) -> bytes:
    """Return `value` as bytes for `cloudpickle.loads`; raises whatever an object's own pickling raises."""
    return _dump(value, set())


def dump_by_value(value: Any, modules: Iterable[ModuleType]) -> bytes:
    """As `dump`, with functions and classes of `modules` by value: what is loaded goes on as it was, whatever becomes
    of them.

    Raises:
        ByValueError: one of them has what cannot be pickled.
    """
    by_name = {module.__name__: module for module in modules}
    met: set[str] = set()
    try:
        with _by_value(by_name.values()):
            return _dump(value, met)
    except Exception as error:  # whatever an object's own pickling raises
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


def _dump(value: Any, met: set[str]) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, met).dump(value)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle gives no types
    """Notes which modules it has met functions and classes of."""

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
        return super().reducer_override(obj)


def _with_cache(function: Callable[..., Any], parameters: dict[str, Any]) -> Callable[..., Any]:
    cached: Callable[..., Any] = lru_cache(**parameters)(function)
    return cached


def _fill(module: ModuleType, content: dict[str, Any]) -> None:
    vars(module).update(content, __builtins__=builtins)
    _by_value_before.add(module)


def _goes_by_value(name: str) -> bool:
    """Return whether the module `name`, or a package that it is in, goes by value."""
    packages = {name.rsplit(".", drop)[0] for drop in range(name.count(".") + 1)}
    return not packages.isdisjoint(cloudpickle.list_registry_pickle_by_value())


def _is_imported(function: Any) -> bool:
    """Return whether a process that imports the module of `function` finds it there, and is to do so."""
    name = str(function.__module__)
    if name == "__main__" or _goes_by_value(name):
        return False
    found: Any = sys.modules.get(name)
    for part in function.__qualname__.split("."):
        found = None if found is None else vars(found).get(part)
    return found is function
