"""Messages for missing packages of Penstock's extras. Imports only penstock.errors."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Final

from penstock.errors import ConfigError

DISTRIBUTION: Final = "penstock-streams"
"""The name for pip; on PyPI, `penstock` is another project."""

_EXTRA_OF: Final[Mapping[str, str]] = {
    "pyspark": "spark",
    "py4j": "spark",
    "pandas": "spark",
    "pyarrow": "arrow",
    "deltalake": "lake",
    "pyiceberg": "lake",
    "rocksdict": "rocksdb",
    "openlineage": "openlineage",
    "opentelemetry": "otel",
    "starlette": "ui",
    "uvicorn": "ui",
}
"""Package -> its extra; py4j comes with pyspark."""


def load(module: str, needed_for: str, extra: str | None = None) -> ModuleType:
    """Return the module `module`, which may need optional packages.

    Args:
        module: its full name.
        needed_for: the feature that needs it, as the subject of the message.
        extra: the extra with all packages of the feature; None for the extra of the missing package.

    Raises:
        ConfigError: a package is missing; the message names its extra.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(f"{needed_for} needs {what_is_missing(error, extra)}") from error


def load_package(name: str, needed_for: str) -> ModuleType:
    """Return the package `name`, which users install themselves.

    Args:
        name: of the package and of its project on PyPI.
        needed_for: the feature that needs it, as the subject of the message.

    Raises:
        ModuleNotFoundError: it is not installed; the message names it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ModuleNotFoundError(
            f"{needed_for} needs the package {name}, which is not installed: pip install {name}.", name=name
        ) from error


def missing_from(extra: str, error: ModuleNotFoundError, needed_for: str) -> ModuleNotFoundError:
    """Return the error for a failed import of a module that needs `extra`.

    Args:
        extra: the extra with the missing package.
        error: the failure of the import.
        needed_for: the feature that needs the module, as the subject of the message.
    """
    return ModuleNotFoundError(f"{needed_for} needs {what_is_missing(error, extra)}", name=error.name)


def what_is_missing(error: ModuleNotFoundError, extra: str | None = None) -> str:
    """Return the missing package and its installation command, as the end of a sentence.

    Args:
        error: the failure of the import.
        extra: the extra to install; None for the extra of the package.
    """
    missing = error.name or str(error)
    package = missing.partition(".")[0]
    extra = _EXTRA_OF.get(package) if extra is None else extra
    wanted = package if extra is None else f"{DISTRIBUTION}[{extra}]"
    installed = sys.modules.get(package)
    if installed is not None and installed.__file__ is None:  # a namespace package, such as google, shared by others
        return f"the package {missing}, which is not installed: pip install '{wanted}'."
    if installed is not None:
        return f"{missing}, which the installed {package} is too old to have: pip install --upgrade '{wanted}'."
    return f"the package {package}, which is not installed: pip install '{wanted}'."
