"""A process that copies a topic to a table until its end, or until it is killed.

`python -m tests.host.lake.program SERVERS TOPIC FORMAT MODE DIRECTORY KILLS...`: it kills itself at each of KILLS once,
over all starts: at the crash points of a copy, and in the library of the table before and after its commit.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pyiceberg.catalog.sql
from deltalake.table import TableMerger

from penstock import Serdes
from penstock.config import StreamsConfig
from penstock.host.lake import copying
from penstock.host.lake.writing import LakeWriter
from penstock.lake import delta
from penstock.lake.tables import LakeMode, LakeSink
from tests.lake.formats import FORMATS

KILLS = ("lake.read", "commit.before", "commit.after", "lake.committed", "purge.after")
"""The moments in their order, for each commit."""


class Kills:
    """The moments at which the process kills itself.

    Args:
        directory: for a file of each kill that has happened.
        orders: moments with the number of the pass, such as `commit.before@2`.
    """

    def __init__(self, directory: Path, orders: list[str]) -> None:
        self._directory = directory
        self._orders = orders
        self._passes: dict[str, int] = {}

    def at(self, moment: str) -> None:
        """Kill the process if this is the moment."""
        self._passes[moment] = self._passes.get(moment, 0) + 1
        order = f"{moment}@{self._passes[moment]}"
        if order in self._orders:
            try:
                (self._directory / order).touch(exist_ok=False)
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function`, the commit of a library, with kills before and after."""

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            self.at("commit.before")
            result = function(*args, **kwargs)
            self.at("commit.after")
            return result

        return call


def main() -> None:
    servers, topic, format_name, mode, directory, *orders = sys.argv[1:]
    kills = Kills(Path(directory), orders)
    copying.crash_point = lambda name, _: kills.at(name)
    catalog = pyiceberg.catalog.sql.SqlCatalog
    catalog.commit_table = kills.around(catalog.commit_table)
    delta.write_deltalake = kills.around(delta.write_deltalake)
    TableMerger.execute = kills.around(TableMerger.execute)
    config = StreamsConfig(
        {
            "application.id": "copy",
            "bootstrap.servers": servers,
            "penstock.lake.commit.interval.ms": 5,
            "penstock.lake.commit.max.bytes": 100,
            "repartition.purge.interval.ms": 0,
        }
    )
    purge = copying.RecordPurge.purge

    def purge_and_kill(self: Any, *args: Any) -> None:
        purge(self, *args)
        kills.at("purge.after")

    copying.RecordPurge.purge = purge_and_kill
    table = FORMATS[format_name](Path(directory)).table()
    sink = LakeSink(table, Serdes.string(), Serdes.string(), mode=LakeMode(mode))
    writer = LakeWriter({topic: sink}, config, lambda error: True)
    print("started", flush=True)
    sys.stdin.read()  # ends when the test closes it
    writer.finish()


if __name__ == "__main__":
    main()
