"""The wheel, installed without extras: Penstock and the packages that it always needs, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

pytestmark = pytest.mark.packaging

ROOT = Path(__file__).parents[2]
BROKER_PROJECT = ROOT / "packages" / "penstock-broker"

WORD_COUNT = """
from penstock import *
from penstock.testing import TopologyTestDriver

builder = StreamsBuilder()
words = builder.stream("text").flat_map_values(lambda line: line.split())
words.group_by(lambda key, word: word).count(Materialized.as_("counts"))
config = {"application.id": "a", "default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}
topology = builder.build()
with TopologyTestDriver(topology, config) as driver:
    driver.create_input_topic("text", Serdes.string(), Serdes.string()).pipe_input("hello hello")
    print(driver.get_key_value_store("counts").get("hello"))
"""


BROKER = """
from penstock.testing import EmbeddedBroker
from confluent_kafka import Producer

with EmbeddedBroker() as broker:
    broker.create_topic("topic")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer.produce("topic", b"value")
    print(producer.flush(120))
"""


THREADS = """
import importlib.util, runpy, sys
from confluent_kafka import Consumer, Producer
from penstock import KafkaStreams
from penstock.testing import EmbeddedBroker

assert [name for name in ("pyspark", "py4j", "pandas", "pyarrow") if importlib.util.find_spec(name)] == []
example = runpy.run_path(sys.argv[1])
with EmbeddedBroker() as broker:
    for topic in ("plaintext-input", "word-count-output"):
        broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer.produce("plaintext-input", b"hello all")
    producer.produce("plaintext-input", b"hello")
    assert producer.flush(120) == 0
    place = {"bootstrap.servers": broker.bootstrap_servers, "state.dir": sys.argv[2], "penstock.host": "threads"}
    KafkaStreams(example["topology"], {**example["config"], **place}).run_to_end(240_000)
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **group})
    consumer.subscribe(["word-count-output"])
    counts = {}
    while counts != {"hello": 2, "all": 1}:
        record = consumer.poll(120)
        counts[record.key().decode()] = int.from_bytes(record.value(), "big")
    consumer.close()
    print(sorted(counts.items()))
"""

NEED_ARROW = {
    "driver.get_key_value_store('counts').to_arrow()": "A table",
    "driver.create_input_topic('text', Serdes.string(), Serdes.string()).pipe_frame([])": "pipe_frame()",
    "from penstock.host.storage.files import Files; Files('.')": "A directory of checkpoints, savepoints or snapshots",
}
"""Calls on a driver that need the extra `arrow`, and how their errors begin."""

_OF_THREADS = (
    "directories",
    "figures",
    "instance",
    "keys",
    "member",
    "output",
    "queries",
    "subscription",
    "task_manager",
)
UNIT_TESTS = ("tests/host/commits/test_committing.py", *(f"tests/host/threads/test_{name}.py" for name in _OF_THREADS))
"""The tests of the threads host that need no broker."""


def built_wheel(project: Path, directory: Path) -> Path:
    """Build the wheel of `project` in `directory`, and return it."""
    before = set(directory.glob("*.whl"))
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)],
        cwd=project, check=True, capture_output=True,
    )  # fmt: skip
    [wheel] = set(directory.glob("*.whl")) - before
    return wheel


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of installed packages with both wheels and what they require."""
    directory = tmp_path_factory.mktemp("wheel")
    site = directory / "site"
    for project in (BROKER_PROJECT, ROOT):
        with zipfile.ZipFile(built_wheel(project, directory)) as archive:
            archive.extractall(site)
    [metadata] = site.glob("penstock_streams-*.dist-info")
    for each in required(Distribution.at(metadata)):
        link(each, site)
    return site


@pytest.fixture(scope="module")
def tools(site: Path) -> Path:
    """A directory of installed packages with those that tests need."""
    tools = site.parent / "tools"
    tools.mkdir()
    for name in ("hypothesis", "pytest", "pytest-timeout", "pytest-xdist"):
        for each in (distribution(name), *required(distribution(name))):
            link(each, tools)
    return tools


def required(root: Distribution) -> list[Distribution]:
    """Return the installed distributions that `root` needs without any extra, and those need, and so on."""
    found: dict[str, Distribution] = {}
    wanted = [(root, "")]
    while wanted:
        one, extra = wanted.pop()
        for line in one.requires or ():
            requirement = Requirement(line)
            if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
                continue
            if requirement.name not in found:
                found[requirement.name] = distribution(requirement.name)
                wanted += [(found[requirement.name], each) for each in ("", *requirement.extras)]
    return list(found.values())


def link(installed: Distribution, site: Path) -> None:
    """Make the packages that `installed` contains appear in `site`."""
    for name in {file.parts[0] for file in installed.files or ()} - {"..", "__pycache__"}:
        if not (site / name).exists():
            (site / name).symlink_to(Path(str(installed.locate_file(name))))


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """A directory of installed packages with pandas and pyarrow."""
    frames = tmp_path / "frames"
    frames.mkdir()
    for name in ("pandas", "pyarrow"):
        for each in (distribution(name), *required(distribution(name))):
            link(each, frames)
    return frames


def run(
    site: Path, *arguments: str, more: tuple[Path, ...] = (), cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python, which finds the packages of `site`, and of `more`, and no others."""
    path = os.pathsep.join(map(str, (site, *more)))
    environment = {"PYTHONPATH": path, "PATH": os.environ["PATH"], "HOME": str(site.parent), "COLUMNS": "200"}
    command = [sys.executable, "-S", *arguments]
    return subprocess.run(command, cwd=cwd or site.parent, env=environment, capture_output=True, text=True, check=False)


def test_a_topology_runs_on_the_test_driver(site: Path) -> None:
    ran = run(site, "-c", WORD_COUNT)
    assert (ran.stdout, ran.stderr) == ("2\n", "")


def test_all_examples_are_in_the_wheel(site: Path) -> None:
    examples = ROOT / "examples"
    expected = {each.relative_to(examples) for each in examples.rglob("*.py")}
    installed = site / "penstock" / "examples"
    assert {each.relative_to(installed) for each in installed.rglob("*.py")} == expected


def test_what_pages_load_is_in_the_wheel(site: Path) -> None:
    static = Path("penstock", "tools", "ui", "static")
    installed = {each.name for each in (site / static).iterdir()}
    assert installed == {each.name for each in (ROOT / "src" / static).iterdir()}
    assert {"uplot-1.6.32.LICENSE", "uplot-1.6.32.min.css", "uplot-1.6.32.min.js"} <= installed


@pytest.mark.parametrize(
    "arguments", [("run", "penstock/examples/word_count.py"), ("reset", "penstock/examples/word_count.py"), ("demo",)]
)
def test_what_needs_spark_says_how_to_install_it(site: Path, arguments: tuple[str, ...]) -> None:
    command, *names = arguments
    files = [str(site / name) for name in names]
    ran = run(site, "-m", "penstock.tools.cli.main", command, *files)
    assert ran.returncode == 1
    assert "pip install 'penstock-streams[spark]'" in ran.stderr
    assert ("penstock demo --host threads" in ran.stderr) is (command == "demo")
    assert "Traceback" not in ran.stderr
    assert "broker" not in ran.stderr  # it starts none before


def test_commands_that_need_no_spark_are_there(site: Path) -> None:
    ran = run(site, "-m", "penstock.tools.cli.main", "describe", str(site / "penstock" / "examples" / "word_count.py"))
    assert "KSTREAM-SOURCE" in ran.stdout
    assert run(site, "-m", "penstock.tools.cli.main", "topics", "--help").returncode == 0


def test_the_demo_runs_on_the_threads_host(site: Path, tmp_path: Path) -> None:
    directory = str(tmp_path / "demo")
    ran = run(
        site, "-m", "penstock.tools.cli.main", "demo", "--host", "threads", "--repeat", "1", "--data-dir", directory
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("asked", list(NEED_ARROW))
def test_what_needs_pyarrow_says_how_to_install_it(site: Path, asked: str) -> None:
    ran = run(site, "-c", f"{WORD_COUNT}    {asked}\n")
    assert ran.stdout == "2\n"
    *_, told = ran.stderr.splitlines()
    said = (
        f"{NEED_ARROW[asked]} needs the package pyarrow, which is not installed: pip install 'penstock-streams[arrow]'."
    )
    assert told == f"penstock.errors.ConfigError: {said}"


def test_many_rows_are_aggregated_without_pyarrow(site: Path) -> None:
    lines = '[f"word{number % 7}" for number in range(100_000)]'
    ran = run(
        site,
        "-c",
        f"""{WORD_COUNT}
with TopologyTestDriver(topology, config) as driver:
    driver.create_input_topic("text", Serdes.string(), Serdes.string()).pipe_value_list({lines})
    print(driver.get_key_value_store("counts").get("word0"))
""",
    )
    assert (ran.stdout, ran.stderr) == ("2\n14286\n", "")


def test_rocksdb_says_how_to_install_it(site: Path) -> None:
    program = "from pathlib import Path; from penstock.config import StreamsConfig; from penstock.state.open import *\n"
    ran = run(site, "-c", f"{program}open_base(ROCKSDB, Path('base'), StreamsConfig({{}}))")
    assert "penstock.state.base=rocksdb needs the package rocksdict" in ran.stderr
    assert "pip install 'penstock-streams[rocksdb]'" in ran.stderr


@pytest.mark.parametrize(
    ("extra", "module"),
    [("avro", "avro"), ("avro", "avro_format"), ("jsonschema", "json_schema"), ("protobuf", "protobuf")],
)
def test_the_serdes_of_a_schema_registry_say_how_to_install_them(site: Path, extra: str, module: str) -> None:
    ran = run(site, "-c", f"import penstock.serdes.{module}")
    *_, told = ran.stderr.splitlines()
    assert told.startswith(f"ModuleNotFoundError: penstock.serdes.{module} needs the package ")
    assert told.endswith(f"which is not installed: pip install 'penstock-streams[{extra}]'.")


def test_the_packages_of_the_lock_file_agree() -> None:
    checked = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_a_test_has_a_broker(site: Path) -> None:
    ran = run(site, "-c", BROKER)
    assert (ran.stdout, ran.stderr) == ("0\n", "")


def test_an_example_runs_on_the_threads_host(site: Path, tmp_path: Path) -> None:
    example = site / "penstock" / "examples" / "word_count.py"
    ran = run(site, "-c", THREADS, str(example), str(tmp_path))
    assert (ran.stdout, ran.returncode) == ("[('all', 1), ('hello', 2)]\n", 0), ran.stderr


def test_the_threads_host_passes_its_unit_tests(site: Path, tools: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-o", "pythonpath=.")  # penstock is that of the wheel
    ran = run(site, "-m", "pytest", *options, *UNIT_TESTS, more=(tools,), cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "4 skipped" in ran.stdout  # those of tables


def test_the_queries_of_the_threads_host_pass_with_pyarrow(site: Path, tools: Path, frames: Path) -> None:
    options = ("-q", "-p", "no:cacheprovider", "-o", "pythonpath=.")
    ran = run(site, "-m", "pytest", *options, "tests/host/threads/test_queries.py", more=(tools, frames), cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "skipped" not in ran.stdout


def test_the_notebook_runs_without_spark(site: Path, tools: Path, frames: Path) -> None:
    options = ("-q", "-rs", "-p", "no:cacheprovider", "-o", "pythonpath=.")
    ran = run(site, "-m", "pytest", *options, "tests/examples/test_notebook.py", more=(tools, frames), cwd=ROOT)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed, 1 skipped" in ran.stdout
    assert "There is no pyspark" in ran.stdout
