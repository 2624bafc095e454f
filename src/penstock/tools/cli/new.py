"""`penstock new`: the files of a runnable project, with a passing test."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated, Final

import typer

import penstock
from penstock.errors import StreamsError
from penstock.extras import DISTRIBUTION
from penstock.tools.cli.common import AsJson, out, print_json
from penstock.tools.cli.run import HostName

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")

_PROGRAM: Final = '''\
"""Adds up the orders of each customer: orders in, the total of each customer out."""

from dataclasses import dataclass

from penstock import Consumed, Grouped, KafkaStreams, Materialized, Produced, Serdes, StreamsBuilder, Topology


@dataclass(frozen=True)
class Order:
    """An order, as JSON in the topic `orders`."""

    customer: str
    amount: float


def build_topology() -> Topology:
    """Return the topology of the application."""
    builder = StreamsBuilder()
    orders = builder.stream("orders", Consumed.with_(Serdes.string(), Serdes.json(Order)))
    by_customer = orders.group_by(lambda key, order: order.customer, Grouped.with_(Serdes.string(), Serdes.json(Order)))
    totals = by_customer.aggregate(
        lambda: 0.0,
        lambda customer, order, total: total + order.amount,
        Materialized.as_("totals-store").with_key_serde(Serdes.string()).with_value_serde(Serdes.double()),
    )
    totals.to_stream().to("totals", Produced.with_(Serdes.string(), Serdes.double()))
    return builder.build()


topology = build_topology()
config = {
    "application.id": "$name",
    "penstock.host": "$host",
}

if __name__ == "__main__":
    with KafkaStreams(topology, config) as streams:
        streams.await_termination()
'''

_TEST: Final = '''\
"""The topology without a broker: the test driver processes each record at once."""

from collections.abc import Iterator

import pytest
from penstock import Serdes
from penstock.testing import TopologyTestDriver

from $module import Order, build_topology


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(build_topology(), {"application.id": "test"}) as driver:
        yield driver


def test_orders_of_a_customer_are_added_up(driver: TopologyTestDriver) -> None:
    orders = driver.create_input_topic("orders", Serdes.string(), Serdes.json(Order))
    totals = driver.create_output_topic("totals", Serdes.string(), Serdes.double())
    orders.pipe_input("o1", Order("ada", 3.0))
    orders.pipe_input("o2", Order("bob", 1.0))
    orders.pipe_input("o3", Order("ada", 4.5))
    assert totals.read_key_values_to_map() == {"ada": 7.5, "bob": 1.0}
    assert driver.get_key_value_store("totals-store").get("ada") == 7.5
'''

_PYPROJECT: Final = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["$requirement"]

[project.optional-dependencies]
dev = ["pytest>=8.3"]

[tool.hatch.build.targets.wheel]
only-include = ["$module.py"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""

_COMPOSE: Final = """\
# One Kafka broker for this project: `docker compose up -d`, then it is at localhost:9092. `docker compose down` deletes
# its topics.
services:
  kafka:
    image: apache/kafka:4.1.1
    ports:
      - "9092:9092"
    healthcheck:
      test: ["CMD", "/opt/kafka/bin/kafka-topics.sh", "--bootstrap-server", "localhost:9092", "--list"]
      interval: 5s
      timeout: 10s
      retries: 12
"""

_README: Final = """\
# $name

`$module.py` adds up the orders of each customer: the topic `orders` in, the topic `totals` out.

## Test

In an environment that has Penstock: install it from a clone (`pip install PATH`) or from a wheel. Its distribution is
`$distribution`; `penstock` on PyPI is another project.

```sh
pip install -e '.[dev]'
pytest
```

## Run

With a broker of its own, at localhost:9092:

```sh
penstock run $module.py
```

In another terminal, write orders and see the totals:

```sh
echo '{"customer": "ada", "amount": 3}' | penstock produce orders --value-serde json
penstock consume totals --from-beginning --value-serde double --max-messages 1
penstock query $module.py totals-store
```

`penstock dev $module.py` also runs it. Whenever you save a file, the changed program continues with the state.

## Run on Kafka

```sh
docker compose up -d --wait
export PENSTOCK_BOOTSTRAP_SERVERS=localhost:9092
penstock topics create orders totals --partitions 4
penstock run $module.py
```

`penstock diff $module.py` shows how a changed program affects its state. `penstock reset $module.py` deletes the state
and the positions, so the application starts over.
"""

_IGNORED: Final = """\
.venv/
__pycache__/
.pytest_cache/
*.egg-info/
dist/
"""

_TEMPLATES: Final[Mapping[str, str]] = {
    "$module.py": _PROGRAM,
    "tests/test_$module.py": _TEST,
    "pyproject.toml": _PYPROJECT,
    "compose.yaml": _COMPOSE,
    "README.md": _README,
    ".gitignore": _IGNORED,
}


def new(
    directory: Annotated[Path, typer.Argument(metavar="NAME", help="The directory; its name is that of the project.")],
    host: Annotated[HostName, typer.Option("--host", help="Where tasks run: the configuration penstock.host.")] = (
        HostName.threads
    ),
    as_json: AsJson = False,
) -> None:
    """Create a project: a program, its test, pyproject.toml, a compose file with Kafka, and a README."""
    files = _files(directory.name, host)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise StreamsError(f"{directory} exists already: name another directory, or one that is empty.")
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    if as_json:
        print_json({"directory": str(directory), "files": list(files)})
        return
    out.print(f"Created {directory}: {', '.join(files)}.", markup=False)
    out.print(f"Run it: cd {directory}; penstock run {next(iter(files))}", markup=False)


def _files(name: str, host: HostName) -> dict[str, str]:
    """Return the text of each file of the project `name`."""
    module = name.replace("-", "_")
    taken = keyword.iskeyword(module) or module in sys.stdlib_module_names or module in ("penstock", "tests")
    if taken or not _NAME.fullmatch(name):
        reason = "Python has a module or a word of this name" if taken else "expected small letters, digits and hyphens"
        raise StreamsError(f"{name!r} cannot be the name of a project: {reason}. An example: order-totals.")
    extra = "[spark]" if host is HostName.spark else ""
    values = {
        "name": name,
        "module": module,
        "host": host.value,
        "distribution": DISTRIBUTION,
        "requirement": f"{DISTRIBUTION}{extra}>={penstock.__version__}",
    }
    return {Template(path).substitute(values): Template(text).substitute(values) for path, text in _TEMPLATES.items()}
