"""What an application with named topologies shows of itself, on threads: its topologies, their state, and control."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest

from penstock import KafkaStreamsNamedTopologyWrapper
from tests.host.support import lines, wait_for
from tests.host.test_named_topologies import counting
from tests.host.test_topologies import TEXT
from tests.host.threads.runner import ThreadsRunner
from tests.support.answers import check_answer
from tests.tools.ui.test_schema import READ
from tests.tools.ui.test_server import address_in

pytestmark = pytest.mark.one_broker


def test_named_topologies_are_shown_and_steered(
    threads_runner: ThreadsRunner,
    application: str,
    unique_name: Callable[[str], str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = {"one": unique_name("one"), "other": unique_name("other")}
    threads_runner.create_topics({**dict.fromkeys(names.values(), 1), f"{application}-out": 1})
    values = {"default.key.serde": TEXT.key_serde, "penstock.ui.port": 0, "penstock.ui.control": True}
    streams = KafkaStreamsNamedTopologyWrapper(threads_runner.config(application, values))
    with streams:
        for name, source in names.items():
            streams.add_named_topology(counting(streams, name, source, f"{application}-out")).all().result()
        told = capsys.readouterr().err
        address, token = address_in(told), told.partition("the token for control is ")[2].split()[0]

        def get(path: str) -> Any:
            with urlopen(f"{address}{path}", timeout=60) as answer:
                read = orjson.loads(answer.read())
            check_answer(f"/{path}", read)
            return read

        def text(path: str) -> str:
            with urlopen(f"{address}{path}", timeout=60) as answer:
                return str(answer.read().decode())

        def do(action: str) -> Any:
            headers = {"Authorization": f"Bearer {token}"}
            request = Request(f"{address}api/v1/control/{action}", headers=headers, method="POST")
            with urlopen(request, timeout=60) as answer:
                return orjson.loads(answer.read())

        def counts(topology: str) -> dict[str, int]:
            found = get(f"api/v1/stores/counts?topology={topology}")["entries"]
            return {each["key"]: each["value"] for each in found}

        threads_runner.write(names["one"], lines(["a", "b", "a"]))
        threads_runner.write(names["other"], lines(["c"]))
        overview = wait_for(lambda: (seen := get("api/v1/overview"))["records_in"] == 4 and seen["lag"] == 0 and seen)
        assert [(each["name"], each["state"]) for each in overview["topologies"]] == [
            ("one", "RUNNING"),
            ("other", "RUNNING"),
        ]
        for path in READ:
            if path not in ("/api/v1/changes", "/api/v1/dead-letters"):
                get(path.removeprefix("/"))

        # state
        wait_for(lambda: counts("one") == {"a": 2, "b": 1} and counts("other") == {"c": 1})
        stores = [(each["topology"], each["store"]) for each in get("api/v1/stores")["stores"]]
        assert stores == [("one", "counts"), ("other", "counts")]
        assert get("api/v1/stores/counts?key=a")["topology"] == "one"  # the first one by default
        with pytest.raises(HTTPError, match="404"):
            get("api/v1/stores/counts?topology=third")
        assert "topology=other" in text("state")
        assert ">c<" in text("state?store=counts&topology=other")

        # topology
        topologies = {each["name"]: each for each in get("api/v1/topology")["topologies"]}
        assert topologies["other"]["subtopologies"][0]["nodes"][0]["topics"] == [names["other"]]
        assert topologies["one"]["subtopologies"][0]["nodes"][0]["lag"] == 0
        assert names["other"] in text("topology.svg?topology=other")
        assert names["other"] not in text("topology.mmd?topology=one")
        assert text("topology").count("<figure") == 2
        assert {(each["topology"], each["task"]) for each in get("api/v1/tasks")["tasks"]} == {
            (name, task) for name in names for task in ("0_0", "1_0")
        }
        assert [each["name"] for each in get("api/v1/commits")["topologies"]] == ["one", "other"]

        # control
        assert do("pause")["paused"]
        assert all(streams.is_named_topology_paused(name) for name in names)
        threads_runner.write(names["other"], lines(["c"]))
        wait_for(lambda: get("api/v1/overview")["lag"] == 1)
        assert "PAUSED" in text("")
        assert not do("resume")["paused"]
        wait_for(lambda: counts("other") == {"c": 2})
        streams.pause_named_topology("one")
        assert not get("api/v1/overview")["paused"]  # the other runs
        do("stop")
        assert streams.await_termination(120_000)
