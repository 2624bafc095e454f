"""A program file: the source of `topology`, or `topologies` by name, and `config` for commands.

The file is run as a module that is not `__main__`, so code under `if __name__ == "__main__"` does not run. An
application that the file starts without this guard refuses to run. The module is not registered afterwards: functions
and classes of the file are sent to workers by value.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any, TypeAlias

from penstock.application.loading import without_running
from penstock.config import StreamsConfig
from penstock.errors import StreamsError
from penstock.host.open import keeps_checkpoint
from penstock.named_topologies import NamedTopology
from penstock.plan.topology import Topology
from penstock.plan.user_lines import calling_line
from penstock.tools.cli.clients import with_default_servers

FileState: TypeAlias = tuple[int, int]
"""The time of the last change (ns) and the size (bytes) of a file."""


class ProgramError(StreamsError):
    """A program file of a command is missing, fails, or does not define `topology`.

    What to do: Run the file with Python to see its own error. It defines `topology`, and `config` if it needs one, at
    module level, and starts nothing unless it is the main program.
    """


@dataclass(frozen=True)
class LoadedProgram:
    """The definitions of a program file.

    Args:
        path: of the file.
        topologies: by name; the only one of a program without names is under the empty name.
        config: the keys of the configuration in the file.
        files: the states of its files when they were loaded.
    """

    path: Path
    topologies: Mapping[str, Topology]
    config: Mapping[str, Any]
    files: Mapping[str, FileState]

    @property
    def topology(self) -> Topology:
        """The only topology; raises ProgramError for a program with named topologies."""
        if "" not in self.topologies:
            raise ProgramError(
                f"{self.path} defines named topologies ({', '.join(self.topologies)}). This command takes a program "
                "with one `topology`; run, describe and ui take both."
            )
        return self.topologies[""]

    def topology_named(self, name: str) -> Topology:
        """Return the topology with a name; raises ProgramError if absent."""
        if name not in self.topologies or not name:
            known = ", ".join(filter(None, self.topologies)) or "none"
            raise ProgramError(f"{self.path} has no topology named {name}; it has: {known}.")
        return self.topologies[name]

    @property
    def named_topologies(self) -> list[NamedTopology]:
        """The topologies with a name."""
        return [each for each in self.topologies.values() if isinstance(each, NamedTopology)]

    def configured(self, overrides: Mapping[str, Any]) -> StreamsConfig:
        """Return the configuration of the file under `overrides`.

        application.id defaults to the name of the file.
        """
        return StreamsConfig({"application.id": self.path.stem.replace("_", "-"), **self.config, **overrides})


def load_program(path: Path) -> LoadedProgram:
    """Run the file `path` and return its definitions.

    Raises:
        ProgramError: the file is missing, fails, or lacks a required definition.
        StreamsError: the file raises it; a note names the line.
    """
    if not path.is_file():
        raise ProgramError(f"There is no file {path}; expected a Python program that defines `topology`.")
    own = file_state(path)
    directory = str(path.resolve().parent)
    hiding = Path(directory, "penstock.py")
    if hiding.exists():
        raise ProgramError(f"{hiding} hides the package penstock from programs next to it: give the file another name.")
    # Modules next to the file are found here and, through the environment, by workers that are started later.
    sys.path.insert(0, directory)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (directory, os.environ.get("PYTHONPATH"))))
    name = path.stem if path.stem != "__main__" else path.resolve().parent.name
    try:
        with without_running(lambda: _refusal(path)):
            names = runpy.run_path(str(path), run_name=name)
    except ProgramError:
        raise
    except StreamsError as error:
        error.add_note(f"Raised by {path} ({_place(error, path)}).")
        raise
    except Exception as error:
        text = str(error).removesuffix(".")
        place = "" if isinstance(error, SyntaxError) else f" ({_place(error, path)})"  # its text names file and line
        raise ProgramError(f"{path} fails: {type(error).__name__}: {text}{place}.{_hint(error)}") from error
    topologies, config = _topologies(path, names), names.get("config", {})
    if not isinstance(config, Mapping):
        raise ProgramError(f"`config` of {path} must be a dict or a StreamsConfig, not a {type(config).__name__}.")
    files = {**modules_beside(path), str(path): own}
    return LoadedProgram(path, topologies, config.given() if isinstance(config, StreamsConfig) else config, files)


def with_servers_of_state(config: StreamsConfig) -> StreamsConfig:
    """Return the configuration for reading a program's state.

    It has the default brokers if brokers have the state and the program names no brokers.
    """
    return config if keeps_checkpoint(config) else with_default_servers(config)


def _refusal(path: Path) -> ProgramError:
    return ProgramError(
        f"{path} runs its application while the command loads it, at {calling_line()}. Nothing was started: put what "
        'runs the application under `if __name__ == "__main__":`. `penstock run` runs the topology itself.'
    )


def _topologies(path: Path, names: Mapping[str, Any]) -> Mapping[str, Topology]:
    """Return the topologies that a file defines, by name; raises ProgramError."""
    topology, named = names.get("topology"), names.get("topologies")
    if topology is None and named is not None:
        if isinstance(named, Mapping) and named and all(isinstance(each, Topology) for each in named.values()):
            try:
                return {name: NamedTopology(name, each) for name, each in named.items()}
            except ValueError as error:
                raise ProgramError(f"`topologies` of {path}: {error}") from error
        raise ProgramError(f"`topologies` of {path} must be a dict with the Topology of each name, with at least one.")
    if not isinstance(topology, Topology):
        found = "it defines none" if topology is None else f"it is a {type(topology).__name__}"
        raise ProgramError(f"{path} must define `topology` at module level, for example with builder.build(): {found}.")
    return {"": topology}


def modules_beside(program: Path, error: BaseException | None = None) -> dict[str, FileState]:
    """Return the states of the files of loaded modules in the directory of a program.

    Args:
        program: the file of the program.
        error: the failure to load the program, if any; the modules in its traceback count, too.
    """
    directory = program.resolve().parent
    names = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    while error is not None:
        names |= {frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__)}
        names.add(getattr(error, "filename", None))  # for a SyntaxError, which has no frame
        error = error.__cause__
    paths = {Path(name) for name in names if isinstance(name, str)}
    return {str(path): file_state(path) for path in paths if path.is_relative_to(directory)}


def file_state(path: Path) -> FileState:
    """Return the time of the last change (ns) and the size (bytes) of a file.

    They change when the file is saved.
    """
    try:
        status = path.stat()
    except OSError:  # an editor is replacing it, or it was deleted
        return -1, -1
    return status.st_mtime_ns, status.st_size


def _hint(error: Exception) -> str:
    if isinstance(error, ImportError) and "relative import" in str(error):
        return " A program is a file by itself: import modules beside it by their names, as in `from models import X`."
    return ""


def _place(error: BaseException, path: Path) -> str:
    """Return the line of the file in which `error` was raised."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}" if line is not None else "outside its own lines"
