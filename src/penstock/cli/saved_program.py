"""Compares the program that runs with its files as they are saved now."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.application.comparison import Compare, Comparison
from penstock.cli.program import FileState, LoadedProgram, ProgramError, file_state
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

    def __init__(self, program: LoadedProgram, overrides: Mapping[str, Any], config: StreamsConfig) -> None:
        """Take the program that runs, with its configuration and what overrides that of its file."""
        self._program = program
        self._config = config
        self._overrides = {**overrides, "application.id": config.required("application.id")}
        self._comparing = threading.Lock()
        self._compared: Answer | None = None

    def compare(self) -> Comparison:
        """Return what the saved program would change.

        Raises:
            ProgramError: it cannot be loaded.
            StreamsError: brokers do not answer, or it is being loaded for somebody else.
        """
        if _are_as(self._program.files):
            return Comparison(f"{self._program.path} has not changed since the start.")
        if not self._comparing.acquire(blocking=False):
            raise StreamsError(f"{self._program.path} is being loaded: ask again in a few seconds.")
        try:
            answer = self._compared
            if answer is None or not _are_as(answer.files):
                answer = self._answer()
                self._compared = answer if answer.files else None  # a process that did not answer may do so next time
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


def streams_of(program: LoadedProgram, overrides: Mapping[str, Any]) -> KafkaStreams | KafkaStreamsNamedTopologyWrapper:
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

    def __init__(self, program: LoadedProgram, overrides: Mapping[str, Any]) -> None:
        """Take the program, and what overrides the configuration of its file; raises as KafkaStreams does."""
        config = program.configured(overrides)
        super().__init__(program.topology, config)
        self._saved_program = SavedProgram(program, overrides, config)

    def _compare(self) -> Compare:
        return self._saved_program.compare


class _NamedTopologiesOfProgram(KafkaStreamsNamedTopologyWrapper):
    """Runs the named topologies of a program file."""

    def __init__(self, program: LoadedProgram, overrides: Mapping[str, Any]) -> None:
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


def _are_as(files: Mapping[str, FileState]) -> bool:
    """Return whether files have the same states as when a program was loaded."""
    return all(file_state(Path(path)) == state for path, state in files.items())
