"""Penstock starts with the oldest versions of the packages that it takes."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.test_wheel import BROKER, BROKER_PROJECT, WORD_COUNT
from tests.support.other_spark import environment, require
from tests.support.sources import SOURCES

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]

THREADS = """
import sys
from penstock import KafkaStreams, Serdes, StreamsBuilder
from penstock.testing import EmbeddedBroker

builder = StreamsBuilder()
builder.stream("text").group_by(lambda key, word: word).count()
with EmbeddedBroker() as broker:
    broker.create_topic("text")
    config = {"application.id": "a", "default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
    place = {"bootstrap.servers": broker.bootstrap_servers, "state.dir": sys.argv[1], "penstock.host": "threads"}
    KafkaStreams(builder.build(), {**config, **place}).run_to_end(120_000)
    print("ended")
"""


TABLE = WORD_COUNT + '    print(driver.get_key_value_store("counts").to_arrow().num_rows)\n'


def floors() -> list[str]:
    """Return the oldest version of each package that Penstock requires, also with the extra `arrow`."""
    found = set()
    for project in (ROOT, BROKER_PROJECT):
        declared = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        extra = declared["optional-dependencies"].get("arrow", [])
        for requirement in map(Requirement, [*declared["dependencies"], *extra]):
            [floor] = requirement.specifier
            if requirement.name != "penstock-broker":  # of the same version, and in this repository
                assert floor.operator == ">="
                found.add(f"{requirement.name}=={floor.version}")
    return sorted(found)


@pytest.mark.timeout(1800)  # the first time they are downloaded
def test_the_oldest_packages_run_a_word_count_a_broker_and_the_threads_host(tmp_path: Path) -> None:
    oldest = floors()
    digest = hashlib.sha256("\n".join(oldest).encode()).hexdigest()[:12]
    surroundings = {**environment(require(f"floors-{digest}", *oldest))}
    surroundings["PYTHONPATH"] += f":{SOURCES}"
    for program, printed in ((WORD_COUNT, "2\n"), (TABLE, "2\n1\n"), (BROKER, "0\n"), (THREADS, "ended\n")):
        ran = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env=surroundings, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert ran.stdout == printed, ran.stderr
