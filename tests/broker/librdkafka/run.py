"""Run librdkafka's own integration tests on the embedded broker; README.md says how.

Usage: python -m tests.broker.librdkafka.run TESTS_DIRECTORY [NUMBER ...] [--group-protocol consumer] [--thorough]
           [--no-auto-create-topics] [--bootstrap-servers ADDRESS]
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from penstock_broker.process import BrokerProcess
from tests.support.kafka import KafkaUnavailableError, cache_directory, kafka_class_path

TIMEOUT_SECONDS: Final = 400
PARTITIONS: Final = 4
"""Partitions of a topic that a client creates by naming it, as in librdkafka's own cluster for tests."""

LEFT_OUT: Final = {
    "0016": "reads the client's name from a broker's JMX port",
    "0028": "a known issue of librdkafka",
    "0047": "a known issue of librdkafka",
    "0097": "TLS is not served",
    "0101": "needs followers: the broker has one replica",
    "0115": "ACLs are not served",
    "0119": "ACLs are not served",
    "0126": "SASL is not served",
    "0135": "SASL is not served",
    "0142": "SASL is not served",
    "0150": "telemetry, on librdkafka's mock cluster",
    "0139": "on librdkafka's mock cluster",
    **{f"{number:04}": "share groups are not served" for number in range(170, 191)},
}
"""Tests that need what the embedded broker does not have, or no broker, by number."""


class Outcome(NamedTuple):
    """What became of a test; the state is PASSED, FAILED or SKIPPED."""

    name: str
    state: str
    seconds: float
    reason: str


def numbers(tests: Path) -> list[str]:
    """Return the numbers of the tests that need a broker, from the table of tests in test.c."""
    source = (tests / "test.c").read_text()
    table = source[source.index("struct test tests[] = {") :]
    entries = re.findall(r"\b_TEST\((\d{4})_\w+,([^)]*)", table[: table.index("\n};")])
    return sorted({number for number, flags in entries if not re.search("TEST_F_(LOCAL|MANUAL)", flags)})


def outcomes(output: str) -> Iterator[Outcome]:
    """Return what the summary at the end of the output of a run says of each test."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    for name, state, seconds, reason in re.findall(r"^\| (\w+) +\| +(\w+) \| +([\d.]+)s \|(.*)$", plain, re.M):
        if name[0].isdigit() and not re.search("not included|negative test flags", reason):
            yield Outcome(name, state, float(seconds), reason.strip())


def run(tests: Path, number: str, environment: dict[str, str], options: list[str], log: Path) -> list[Outcome]:
    """Run the tests of a number in a process of their own."""
    command = ["./test-runner", "-p1", "-L", *options]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command,
            cwd=tests,
            env=environment | {"TESTS": number},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return [Outcome(number, "FAILED", TIMEOUT_SECONDS, "no end")]
    found = list(outcomes(log.read_text(errors="replace")))
    return found or [Outcome(number, "FAILED", 0, reason_of_end(log) or f"exit status {process.returncode}")]


def reason_of_end(log: Path) -> str:
    """Return what the log says of a failure that ended the process."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace")).splitlines()
    failures = [at for at, line in enumerate(lines) if line.startswith("###")]
    return " ".join(lines[failures[0] : failures[0] + 2]) if failures else ""


def environment_of(tests: Path, directory: Path, bootstrap_servers: str) -> dict[str, str]:
    """Return the environment of the tests: their configuration, their libraries and Kafka's tools."""
    configuration = directory / "test.conf"
    configuration.write_text(
        f"metadata.broker.list={bootstrap_servers}\nbroker.address.family=v4\ntest.topic.random=true\n"
        # Test 0059 takes the ten seconds it has, which its own settings make it wait.
        "test.timeout.multiplier=3\n"
    )
    tools = directory / "bin"
    tools.mkdir()
    # The tests compile Java programs of their own.
    (directory / "libs").symlink_to(cache_directory() / "libs")
    try:
        start = f'exec java -XX:TieredStopAtLevel=1 -cp "$CLASSPATH:{kafka_class_path()}"'
    except KafkaUnavailableError as error:
        start = f"echo '{error}'; exit 1;"
    for name, main in (("kafka-topics.sh", "org.apache.kafka.tools.TopicCommand"), ("kafka-run-class.sh", "")):
        (tools / name).write_text(f'#!/bin/sh\n{start} {main} "$@"\n')
        (tools / name).chmod(0o700)
    return os.environ | {
        "RDKAFKA_TEST_CONF": str(configuration),
        "LD_LIBRARY_PATH": f"{tests.parent / 'src'}:{tests.parent / 'src-cpp'}",
        "KAFKA_PATH": str(directory),
        "BROKERS": bootstrap_servers,
        "TEST_KAFKA_VERSION": "4.0.0",
    }


def main() -> int:
    """Run what the command line says; return 1 where a test failed that is not left out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=Path, help="librdkafka's directory `tests`, in which test-runner was built")
    parser.add_argument("numbers", nargs="*", help="tests, by number; all that need a broker unless given")
    parser.add_argument("--group-protocol", choices=["classic", "consumer"], default="classic")
    parser.add_argument(
        "--no-auto-create-topics", action="store_true", help="the scenario `noautocreate`: a broker that creates none"
    )
    parser.add_argument("--bootstrap-servers", help="another broker to run them on, such as a real Kafka")
    parser.add_argument("--thorough", action="store_true", help="not the quick form of tests that have one")
    arguments = parser.parse_intermixed_args()
    tests: Path = arguments.tests.resolve()
    logs = Path(tempfile.mkdtemp(prefix="librdkafka-tests-"))
    print(f"logs of the tests and the broker: {logs}", flush=True)
    options = [] if arguments.thorough else ["-Q"]
    counts = Counter[str]()
    with ExitStack() as opened:
        address: str = (
            arguments.bootstrap_servers
            or opened.enter_context(
                BrokerProcess(
                    logs / "data",
                    num_partitions=PARTITIONS,
                    auto_create_topics=not arguments.no_auto_create_topics,
                    # Test 0118 expects the members of its group in one generation.
                    arguments=("--group-initial-rebalance-delay-ms", "3000"),
                )
            ).bootstrap_servers
        )
        environment = environment_of(tests, logs, address)
        environment["TEST_CONSUMER_GROUP_PROTOCOL"] = arguments.group_protocol
        environment["TEST_SCENARIO"] = "noautocreate" if arguments.no_auto_create_topics else "default"
        for number in arguments.numbers or [each for each in numbers(tests) if each not in LEFT_OUT]:
            for name, state, seconds, reason in run(tests, number, environment, options, logs / f"{number}.log"):
                counts[state] += 1
                print(f"| {name} | {state.lower()} | {seconds:.0f} s | {reason} |", flush=True)
    print(", ".join(f"{count} {state.lower()}" for state, count in counts.items()))
    return 1 if counts["FAILED"] else 0


if __name__ == "__main__":
    sys.exit(main())
