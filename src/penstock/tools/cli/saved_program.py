"""Compares the running program with its files as they are saved now."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from penstock.application.comparison import Compare, Comparison
from penstock.config import StreamsConfig
from penstock.errors import StreamsError, UnsupportedOperationError
from penstock.extras import load
from penstock.named_topologies import KafkaStreamsNamedTopologyWrapper
from penstock.streams import KafkaStreams
from penstock.tools.cli.program import FileState, LoadedProgram, ProgramError, file_state
from penstock.tools.cli.program_process import Order, ProgramAnswer, ProgramProcess

_END_SECONDS: Final = 1.0
"""How long a process that has only loaded a program may take to end."""


class SavedProgram:
    """Compares one program with its files.

    The saved files are loaded in a separate process, once per save, however many comparisons are requested.

    Args:
        program: the running program.
        overrides: of the configuration in its file.
        config: its configuration.
    """

    def __init__(self, program: LoadedProgram, overrides: Mapping[str, Any], config: StreamsConfig) -> None:
        self._program = program
        self._config = config
        self._overrides = {**overrides, "application.id": config.required("application.id")}
        self._comparing = threading.Lock()
        self._compared: ProgramAnswer | None = None

    def compare(self) -> Comparison:
        """Return the changes of the saved program.

        Raises:
            ProgramError: it cannot be loaded.
            StreamsError: brokers do not answer, or another caller is loading it.
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

    def _answer(self) -> ProgramAnswer:
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
        ConfigError: a key is missing or has an invalid value.
        TopologyError: a topology cannot be run.
    """
    if program.named_topologies:
        return _NamedTopologiesOfProgram(program, overrides)
    return _StreamsOfProgram(program, overrides)


class _StreamsOfProgram(KafkaStreams):
    """Runs the only topology of a program file.

    Args:
        program: the program.
        overrides: of the configuration in its file.

    Raises the errors of KafkaStreams.
    """

    def __init__(self, program: LoadedProgram, overrides: Mapping[str, Any]) -> None:
        config = program.configured(overrides)
        super().__init__(program.topology, config)
        self._saved_program = SavedProgram(program, overrides, config)

    def _compare(self) -> Compare:
        return self._saved_program.compare


class _NamedTopologiesOfProgram(KafkaStreamsNamedTopologyWrapper):
    """Runs the named topologies of a program file.

    Args:
        program: the program.
        overrides: of the configuration in its file.

    Raises the errors of the base class.
    """

    def __init__(self, program: LoadedProgram, overrides: Mapping[str, Any]) -> None:
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
    """Return whether files have the same states as at the loading of a program."""
    return all(file_state(Path(path)) == state for path, state in files.items())
