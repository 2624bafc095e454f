"""The modules of the user's program: modules that are loaded here and are not installed.

They are sent to executors. Their former content is stored with a program whose epoch a later program may have to
finish.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TypeGuard
from weakref import WeakKeyDictionary

from penstock.plan.user_lines import is_installed

_NOT_USERS = frozenset(("__main__", "penstock", "penstock_broker", "pyspark", "py4j"))
"""Packages that are never the user's, whatever their location; functions of the main module are pickled by value
anyway.
"""

_digests: WeakKeyDictionary[ModuleType, tuple[ModuleSpec | None, str | None]] = WeakKeyDictionary()


def user_modules(modules: Iterable[object]) -> Iterator[ModuleType]:
    """Yield the user's modules of `modules`; some libraries put other objects into sys.modules."""
    for module in modules:
        if _is_module(module) and _is_users(module):
            yield module


def source_of(module: ModuleType) -> Path | None:
    """Return the Python file of `module`, None if it is in an archive or absent."""
    return _python_file(vars(module).get("__file__"))


def loaded_digests() -> dict[str, str]:
    """Return the digest of the source of each loaded module of the user, by name.

    It is computed when a module is first seen here, and again after a reload: it describes the loaded code, not later
    edits.
    """
    found: dict[str, str] = {}
    loaded: list[tuple[str, object]] = list(sys.modules.items())
    for name, module in loaded:
        digest = _digest(module) if _is_module(module) else None
        if digest is not None:
            found[name] = digest
    return found


def changed_modules(digests: Mapping[str, str]) -> list[str]:
    """Return the modules that have changed or disappeared since `loaded_digests` returned `digests`."""
    return [name for name, digest in digests.items() if _digest_now(name) != digest]


def _is_module(module: object) -> TypeGuard[ModuleType]:
    """Return whether `module` is a module; isinstance also accepts cffi's modules, which cryptography has."""
    return issubclass(type(module), ModuleType)


def _digest(module: ModuleType) -> str | None:
    known = _digests.get(module)
    if known is None or known[0] is not module.__spec__:  # a reload sets another one
        path = source_of(module) if _is_users(module) else None
        known = _digests[module] = module.__spec__, None if path is None else _digest_of(path)
    return known[1]


def _digest_now(name: str) -> str | None:
    loaded: object = sys.modules.get(name)
    if _is_module(loaded):
        return _digest(loaded)
    spec = None
    with suppress(Exception):  # any error of a package that is loaded for the search
        spec = importlib.util.find_spec(name)
    path = None if spec is None else _python_file(spec.origin)
    return None if path is None else _digest_of(path)


def _digest_of(path: Path) -> str:
    return blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _is_users(module: ModuleType) -> bool:
    if module.__name__.partition(".")[0] in _NOT_USERS:
        return False
    path = source_of(module)
    return path is not None and not is_installed(path)


def _python_file(name: object) -> Path | None:
    path = Path(name).resolve() if isinstance(name, str) and name.endswith(".py") else None
    return path if path is not None and path.is_file() else None
