"""Sends code to the executors of a cluster: Penstock itself, and the modules of the user's program.

A module is sent if the program has loaded it and it is not installed: of a package all files, of a namespace package
those that are loaded. Installed packages (numpy, confluent-kafka ...) have parts that are not Python: they must be
installed where the executors run, or be sent as an archive by Spark's own means (`spark.archives`). Processes on this
machine read the files in place and receive nothing.
"""

from __future__ import annotations

import hashlib
import os
import py_compile
import sys
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from types import ModuleType

from pyspark import SparkContext

import penstock
import penstock_broker
from penstock.errors import StreamsError
from penstock.host.spark.protocol.user_modules import source_of, user_modules
from penstock.host.spark.session import is_local
from penstock.private_files import default_directory, private_directory

MAXIMUM_BYTES = 64 * 1024 * 1024
"""Maximum total size (bytes) of the files to send."""

_NEVER_STALE = py_compile.PycInvalidationMode.UNCHECKED_HASH


def send_code(context: SparkContext, modules: Iterable[object]) -> Path | None:
    """Send the code to the executors of `context`, and return its archive.

    Return None if all of Spark is on this machine.

    Args:
        context: the SparkContext.
        modules: the loaded modules of the program.

    Raises:
        StreamsError: the files are larger than MAXIMUM_BYTES.
    """
    if is_local(str(context.master)):
        return None
    files = {**_files_of(penstock), **_files_of(penstock_broker), **_files_of_program(modules)}
    _check_size(files)
    # Spark rejects a second file with the same name and other content, so the name depends on the content.
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        digest.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    directory = private_directory(private_directory(default_directory()) / "code")
    archive = directory / f"penstock-{digest.hexdigest()[:16]}.zip"
    if not archive.exists():
        temporary = archive.with_suffix(f".{os.getpid()}")
        _write_archive(temporary, files)
        temporary.replace(archive)
    if not any(file.endswith(f"/{archive.name}") for file in context.listFiles):
        context.addPyFile(str(archive))
    return archive


def _files_of_program(modules: Iterable[object]) -> dict[str, Path]:
    """Return the files of the modules that are not installed, by name in the archive."""
    files: dict[str, Path] = {}
    packages: set[str] = set()
    for module in user_modules(modules):
        top = module.__name__.partition(".")[0]
        if top in packages:
            continue
        root = sys.modules.get(top)
        if root is not None and source_of(root) is not None:
            packages.add(top)
            files.update(_files_of(root))
        else:
            files.update(_file_of(module))
    return files


def _files_of(module: ModuleType) -> dict[str, Path]:
    """Return the files of a package or module, by name in the archive."""
    path = source_of(module)
    if path is None or path.name != "__init__.py":
        return _file_of(module)
    return {f"{module.__name__}/{each.relative_to(path.parent)}": each for each in path.parent.rglob("*.py")}


def _file_of(module: ModuleType) -> dict[str, Path]:
    path = source_of(module)
    if path is None:
        return {}
    name = module.__name__.replace(".", "/")
    return {f"{name}/__init__.py" if path.name == "__init__.py" else f"{name}.py": path}


def _check_size(files: Mapping[str, Path]) -> None:
    size = sum(path.stat().st_size for path in files.values())
    if size > MAXIMUM_BYTES:
        largest = max(files, key=lambda name: files[name].stat().st_size)
        raise StreamsError(
            f"The modules of the program have {size} bytes, more than the {MAXIMUM_BYTES} that Penstock sends to "
            f"executors; the largest is {largest}. Install them where the executors run and set "
            "penstock.spark.send.code=false, or send them as an archive with spark.archives."
        )


def _write_archive(target: Path, files: Mapping[str, Path]) -> None:
    # Python finds a directory without an __init__ in an archive only if the directory has an entry.
    directories = {str(parent) for name in files for parent in PurePosixPath(name).parents if parent.name}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(directories):
            archive.mkdir(name)
        for name, path in sorted(files.items()):
            archive.writestr(name, path.read_bytes())
            archive.writestr(f"{name}c", _compiled(name, path))


def _compiled(name: str, path: Path) -> bytes:
    """Return the byte code of a file, or empty bytes if it does not compile.

    Without byte code in the archive, every worker would compile the source again. Python ignores an empty byte code
    file.
    """
    with TemporaryDirectory() as directory:
        target = Path(directory) / "code"
        try:
            py_compile.compile(str(path), str(target), name, True, invalidation_mode=_NEVER_STALE)
        except py_compile.PyCompileError:
            return b""
        return target.read_bytes()
