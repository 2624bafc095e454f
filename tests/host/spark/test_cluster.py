"""An application on a cluster of Spark's own kind: a master and a worker of the installed package, and spark-submit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

import penstock
import penstock_broker
from penstock_broker.process import BrokerProcess
from tests.crash.processes import JAVA_OPTIONS
from tests.host.spark.support import SparkRunner
from tests.host.support import lines, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]

SOURCE = os.pathsep.join(str(Path(package.__file__).parents[1]) for package in (penstock, penstock_broker))
SPARK = Path(pyspark.__file__).parent
WORDS = """
def split(line):
    return line.split()
"""
PROGRAM = """
import json
import sys
from pathlib import Path
from urllib.request import urlopen

import words  # beside this file, installed nowhere

import penstock
import penstock_broker
from penstock import Consumed, KafkaStreams, Materialized, Produced, Serdes, State, StreamsBuilder
from pyspark import SparkContext

config = json.loads(sys.argv[1])
text = Serdes.string()
builder = StreamsBuilder()
lines = builder.stream("in", consumed=Consumed.with_(key_serde=text, value_serde=text))
(
    lines.flat_map_values(words.split)
    .group_by(lambda _, word: word)
    .count(materialized=Materialized.with_(key_serde=text, value_serde=Serdes.long()))
    .to_stream()
    .map_values(str)
    .to("out", produced=Produced.with_(key_serde=text, value_serde=text))
)
(
    lines.map_values(lambda _: f"{penstock.__file__} {words.__file__}")
    .to("where", produced=Produced.with_(key_serde=text, value_serde=text))
)


def keep_metrics_of_executors(state, _):
    if state is State.RUNNING:
        address = f"{SparkContext.getOrCreate().uiWebUrl}/metrics/executors/prometheus"
        with urlopen(address, timeout=60) as answer:
            Path(sys.argv[2]).write_bytes(answer.read())


streams = KafkaStreams(builder.build(), {**config, "default.key.serde": text, "default.value.serde": text})
streams.set_state_listener(keep_metrics_of_executors)
streams.run_to_end()
"""


@contextmanager
def daemon(log: Path, *arguments: str) -> Iterator[None]:
    """Run a class of Spark in its own process, which writes to `log`."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**inherited, "JDK_JAVA_OPTIONS": JAVA_OPTIONS, "SPARK_HOME": str(SPARK), "SPARK_NO_DAEMONIZE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK / "bin" / "spark-class"), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait(120)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a standalone master with one worker of two cores, whose Python knows no module of the test."""
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    log, worker_log = tmp_path / "master.log", tmp_path / "worker.log"
    with daemon(log, "org.apache.spark.deploy.master.Master", *here):
        found = wait_for(lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()))
        address: str = found.group(1)
        of_worker = (*here, "--cores", "2", "--memory", "1g", "--work-dir", str(tmp_path / "work"))
        with daemon(worker_log, "org.apache.spark.deploy.worker.Worker", *of_worker, address):
            wait_for(lambda: "Successfully registered with master" in worker_log.read_text())
            yield address


def python_without_penstock(directory: Path) -> Path:
    """Return an interpreter that has the installed packages, and not those that only point at a directory."""
    python = directory / "python"
    path = f"${{PYTHONPATH:+$PYTHONPATH:}}{sysconfig.get_path('purelib')}"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{path}" exec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return python


def test_spark_submit_runs_a_program_on_a_standalone_master_and_sends_its_modules(
    embedded_broker: BrokerProcess, master: str, tmp_path: Path, unique_name: Callable[[str], str]
) -> None:
    runner = SparkRunner(embedded_broker.bootstrap_servers, tmp_path / "runner")
    runner.create_topics({"in": 2, "out": 1, "where": 1})
    runner.write("in", lines(["a b", "b", "c a"], partitions=2))
    program = tmp_path / "program" / "program.py"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.with_name("words.py").write_text(WORDS)
    config = {
        "application.id": unique_name("app"),
        "bootstrap.servers": embedded_broker.bootstrap_servers,
        "state.dir": str(tmp_path / "state"),
        "statestore.cache.max.bytes": 0,
        "penstock.spark.partitions": 1,
    }
    executable = {"PYSPARK_PYTHON": str(python_without_penstock(tmp_path)), "PYSPARK_DRIVER_PYTHON": sys.executable}
    submit = [str(SPARK / "bin" / "spark-submit"), "--master", master, "--conf", "spark.driver.host=127.0.0.1"]
    with_ui = ("--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0")
    executors = tmp_path / "executors"
    ended = subprocess.run(
        [*submit, *with_ui, str(program), json.dumps(config), str(executors)],
        env={
            **os.environ,
            "PYTHONPATH": SOURCE,
            "SPARK_HOME": str(SPARK),
            "JDK_JAVA_OPTIONS": JAVA_OPTIONS,
            **executable,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=480,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-4000:]
    counts = {record.key: record.value for record in runner.read("out")}
    assert counts == {b"a": b"2", b"b": b"2", b"c": b"1"}
    (where,) = {record.value or b"" for record in runner.read("where")}
    assert re.fullmatch(r"\S*/(penstock-\w+\.zip)/penstock/__init__.pyc \S*/\1/words.pyc", where.decode()), where
    dashboard = (Path(__file__).parents[3] / "deploy" / "grafana" / "spark.json").read_text()
    asked = set(re.findall(r"\bmetrics_executor_\w+", dashboard))
    assert asked <= set(re.findall(r"^\w+", executors.read_text(), re.MULTILINE))
    assert asked
    runner.close()
