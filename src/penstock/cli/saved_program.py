"""Compares the program that runs with its files as they are saved now."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.application.comparison import Compare, Comparison
from penstock.cli.program import Program, ProgramError, file_state
from penstock.cli.program_process import Answer, Order, ProgramProcess
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, UnsupportedOperationError
from penstock.extras import load
from penstock.named_topologies import KafkaStreamsNamedTopologyWrapper
from penstock.streams import KafkaStreams

_END_SECONDS: Final = 1.0
"""How long the process may take to end that has loaded a program and runs nothing."""


class SavedProgram:
    """Compares one program with its files. It loads the saved files in a process of their own, once for each time that
    they are saved, however often it is asked."""

    def __init__(self, program: Program, overrides: Mapping[str, Any], config: StreamsConfig) -> None:
        """Take the program that runs, with its configuration and what overrides that of its file."""
        self._program = program
        self._config = config
        self._overrides = {**overrides, "application.id": config.required("application.id")}
        self._paths = _paths(program.path)
        self._loaded = self._files()
        self._comparing = threading.Lock()
        self._compared: tuple[Any, Answer] | None = None

    def compare(self) -> Comparison:
        """Return what the saved program would change.

        Raises:
            ProgramError: it cannot be loaded.
            StreamsError: brokers do not answer, or it is being loaded for somebody else.
        """
        files = self._files()
        if files == self._loaded:
            return Comparison(f"{self._program.path} has not changed since the start.")
        if not self._comparing.acquire(blocking=False):
            raise StreamsError(f"{self._program.path} is being loaded: ask again in a few seconds.")
        try:
            if self._compared is None or self._compared[0] != files:
                self._compared = files, self._answer()
            answer = self._compared[1]
        finally:
            self._comparing.release()
        if answer.error is not None:
            raise ProgramError(f"{self._program.path} was saved since the start, and cannot be loaded: {answer.error}")
        return Comparison(f"{self._program.path} was saved since the start.", answer.lines)

    def _answer(self) -> Answer:
        savepoints = load("penstock.savepoints", "the comparison of programs")
        order = Order(
            str(self._program.path),
            self._overrides,
            creates_topics=False,
            verbose=False,
            before=savepoints.shape_of(self._program.topology, self._config),
        )
        process = ProgramProcess(order, prints_to_stderr=True)
        try:
            return process.answer()
        finally:
            process.close(_END_SECONDS)

    def _files(self) -> tuple[tuple[int, int], ...]:
        """Return the times of the last changes (ns) and the sizes (bytes) of the files."""
        return tuple(file_state(path) for path in self._paths)


def streams_of(program: Program, overrides: Mapping[str, Any]) -> KafkaStreams | KafkaStreamsNamedTopologyWrapper:
    """Return the application of a program, not yet started.

    Args:
        program: with one topology, or with named ones.
        overrides: of the configuration in its file.

    Raises:
        ConfigError: a key is missing or has a value that cannot be.
        TopologyError: a topology cannot be run.
    """
    if program.named_topologies:
        return _NamedTopologiesOfProgram(program, overrides)
    return _StreamsOfProgram(program, overrides)


class _StreamsOfProgram(KafkaStreams):
    """Runs the only topology of a program file."""

    def __init__(self, program: Program, overrides: Mapping[str, Any]) -> None:
        """Take the program, and what overrides the configuration of its file; raises as KafkaStreams does."""
        config = program.configured(overrides)
        super().__init__(program.topology, config)
        self._saved_program = SavedProgram(program, overrides, config)

    def _compare(self) -> Compare:
        return self._saved_program.compare


class _NamedTopologiesOfProgram(KafkaStreamsNamedTopologyWrapper):
    """Runs the named topologies of a program file."""

    def __init__(self, program: Program, overrides: Mapping[str, Any]) -> None:
        """Take the program, and what overrides the configuration of its file; raises as the base class does."""
        super().__init__(program.configured(overrides))
        self._path = program.path
        self._add_all(program.named_topologies)

    def _compare(self) -> Compare:
        def refuse() -> Comparison:
            raise UnsupportedOperationError(
                f"{self._path} has named topologies, so this page does not compare it: see `penstock ui {self._path}`."
            )

        return refuse


def _paths(program: Path) -> list[Path]:
    """Return the files of a program: its own, and those of the modules beside it that it has imported."""
    directory = program.resolve().parent
    modules = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    beside = {Path(file) for file in modules if file is not None and Path(file).is_relative_to(directory)}
    return [program, *sorted(beside)]
