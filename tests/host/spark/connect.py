"""Runs topologies on Spark Connect: a server in its own process, and a client here.

Its import needs the packages of pyspark[connect].
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql.connect.session import SparkSession

from tests.crash.processes import JAVA_OPTIONS
from tests.host.spark.support import SparkRunner

SPARK = Path(pyspark.__file__).parent
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.locality.wait": "0",
    "spark.python.daemon.module": "penstock.host.spark.worker.daemon",
    "spark.ui.enabled": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.connect.grpc.binding.address": "127.0.0.1",
}


class ConnectServer:
    """A server of Spark Connect on this machine, local[2]. It writes its log into `directory`."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.log = directory / "server.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        settings = {**SETTINGS, "spark.connect.grpc.binding.port": str(self.port)}
        options = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
        submit = [str(SPARK / "bin" / "spark-submit"), "--master", "local[2,4]", *options, "--class", SERVER]
        own = {
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),  # Penstock, and the tests with their functions
            "SPARK_HOME": str(SPARK),
        }
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*submit, "spark-internal"],
                env={**os.environ, **own},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def address(self) -> str:
        """Where clients find it. It may not listen yet; clients try again."""
        return f"sc://127.0.0.1:{self.port}"

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()


class ConnectRunner(SparkRunner):
    """Runs topologies on one broker in one session of Spark Connect."""

    def close(self) -> None:
        """End session and server."""
        if "server" in vars(self):
            self.session.stop()
            self.server.kill()
        super().close()

    @cached_property
    def server(self) -> ConnectServer:
        """The server, started when first asked for."""
        return ConnectServer(self.directory / "server")

    @cached_property
    def session(self) -> Any:
        """The session, opened when first asked for."""
        # not by pyspark.sql.SparkSession.builder.remote, which makes all of this process's sessions remote
        return SparkSession.builder.remote(self.server.address).create()
