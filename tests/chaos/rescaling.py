"""Rescales an application that does not run, as docs/changing-a-topology.md tells users to: by the commands
`penstock savepoint take` and `restore --rescale`, on a file that defines the topology and the configuration.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.config import StreamsConfig
from penstock.host.spark.checkpoints.checkpoint import Checkpoint
from tests.support.sources import SOURCES

_COMMAND_SECONDS = 300
_ROOT = Path(__file__).parents[2]

_PROGRAM = """
from tests.chaos import program
topology = program.topology({prefix!r}, {version!r}, {letters!r})
config = {config!r}
"""


class SavepointCommands:
    """Runs `penstock savepoint` for one application; raises AssertionError with what a command said if it fails."""

    def __init__(self, directory: Path) -> None:
        """Keep programs and savepoints in `directory`."""
        self._directory = directory
        self._directory.mkdir(parents=True)
        self._taken = 0

    def take(self, topology: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        """Take a savepoint and return where it is. topology: arguments of `program.topology`.

        State of stores that the program has no longer is dropped before: it cannot be divided.
        """
        self._taken += 1
        program = self._program(topology, config)
        metadata = Checkpoint(StreamsConfig(config).checkpoint_directory()).read_metadata()
        assert metadata is not None
        for store in metadata.removed:
            self._run("drop", program, store)
        savepoint = str(self._directory / f"savepoint-{self._taken}")
        self._run("take", program, savepoint)
        return savepoint

    def restore(self, savepoint: str, topology: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """Make the checkpoint of `config` from a savepoint, with the keys divided as the topics are now."""
        self._run("restore", savepoint, self._program(topology, config), "--rescale")

    def _program(self, topology: Mapping[str, Any], config: Mapping[str, Any]) -> str:
        path = self._directory / "application.py"
        path.write_text(_PROGRAM.format(config=dict(config), **topology))
        return str(path)

    def _run(self, *arguments: str) -> None:
        ended = subprocess.run(
            [sys.executable, "-m", "penstock.tools.cli.main", "savepoint", *arguments],
            env={**os.environ, "PYTHONPATH": f"{SOURCES}:{_ROOT}"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
        )
        assert ended.returncode == 0, f"penstock savepoint {' '.join(arguments)}: {ended.stdout}{ended.stderr}"
