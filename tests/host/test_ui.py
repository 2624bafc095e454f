"""What an application shows of itself, on each host."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest

from penstock import KafkaStreams, Produced, Serdes, StreamsBuilder
from penstock.savepoints import inspect
from tests.host.support import WITH_A_SESSION, Runner, lines, wait_for
from tests.host.test_topologies import TEXT, word_count
from tests.support.answers import check_answer
from tests.tools.ui.test_schema import READ

pytestmark = [WITH_A_SESSION, pytest.mark.one_broker]


@pytest.mark.partitions(2, 1)
def test_an_application_shows_how_far_it_is(
    runner: Runner, application: str, topics: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source, target = topics
    control = {"penstock.ui.control": True, "penstock.ui.savepoint.dir": str(tmp_path)}
    config = runner.config(application, {"penstock.ui.port": 0, **control})
    runner.write(source, lines(["a b", "b", "c"], partitions=2))
    with KafkaStreams(word_count(source, target), config, **runner.options()):
        told = capsys.readouterr().err
        found = re.search(r"http://\S+/", told)
        assert found is not None

        def get(path: str) -> Any:
            with urlopen(f"{found[0]}{path}", timeout=60) as answer:
                read = orjson.loads(answer.read())
            check_answer(f"/{path}", read)
            return read

        wait_for(lambda: get("api/v1/overview")["records_in"] == 3)
        overview = wait_for(lambda: (seen := get("api/v1/overview"))["lag"] == 0 and seen["output_age_ms"] and seen)
        assert 0 <= overview["output_age_ms"]["p50"] <= overview["output_age_ms"]["p99"]
        assert overview["stream_time"]["skew_ms"] >= 0
        history = wait_for(lambda: any((seen := get("api/v1/history"))["output_age_p99_ms"]) and seen)
        assert max(filter(None, history["records_in_per_second"])) > 0
        assert all(lag is None or lag >= 0 for lag in history["lag"])
        assert overview["topologies"][0]["commit"]["number"] >= 1
        tasks = [each for each in get("api/v1/tasks")["tasks"] if each["task"].startswith("0_")]
        positions = {(each["topic"], each["partition"]) for task in tasks for each in task["partitions"]}
        assert positions == {(source, 0), (source, 1)}
        (commits,) = get("api/v1/commits")["topologies"]
        assert sum(each["records"] for each in commits["commits"]) >= 3
        assert all(each["phases_ms"]["process"] > 0 for each in commits["commits"] if each["records"])
        (topology,) = get("api/v1/topology")["topologies"]
        assert sum(part["share_of_time"] for part in topology["subtopologies"]) == pytest.approx(1)
        assert get("health/ready?max_lag=0")["reasons"] == []
        (store,) = wait_for(lambda: (seen := get("api/v1/stores")["stores"])[0]["entries"] == 3 and seen)
        assert store["store"] == "counts"
        if config["penstock.host"] == "spark":
            assert store["segments"] >= 1
            assert store["segment_bytes"] > 0
        else:
            assert (store["segments"], store["segment_bytes"]) == (None, None)
        assert [each["value"] for each in get("api/v1/stores/counts?key=b")["entries"]] == [2]
        assert {each["key"] for each in get("api/v1/stores/counts")["entries"]} == {"a", "b", "c"}
        for path in READ:
            if path not in ("/api/v1/changes", "/api/v1/dead-letters"):
                get(path.removeprefix("/"))
        token = told.partition("the token for control is ")[2].split()[0]

        def action(path: str) -> Request:
            bearer = {"Authorization": f"Bearer {token}"}
            return Request(f"{found[0]}api/v1/control/{path}", headers=bearer, method="POST")

        def tapped() -> Any:
            (topology,) = get("api/v1/topology")["topologies"]
            nodes = [node for part in topology["subtopologies"] for node in part["nodes"]]
            return next(node["tapped"] for node in nodes if node["name"] == "KSTREAM-SOURCE-0000000000")

        assert tapped() is None
        urlopen(action("tap?node=KSTREAM-SOURCE-0000000000"), timeout=60).close()
        runner.write(source, lines(["tapped"], partitions=2))
        assert wait_for(tapped)[0]["value"] == "'tapped'"
        urlopen(action("untap?node=KSTREAM-SOURCE-0000000000"), timeout=60).close()
        assert tapped() is None
        take = action("savepoint")
        if config["penstock.host"] == "spark":
            with urlopen(take, timeout=60) as answer:
                (taken,) = tmp_path.iterdir()
                assert orjson.loads(answer.read())["savepoint"] == str(taken)
            assert inspect(str(taken)).epoch >= 1
        else:
            with pytest.raises(HTTPError, match="404"):
                urlopen(take, timeout=60)
        with urlopen(f"{found[0]}metrics", timeout=60) as answer:
            assert "kafka_streams_stream_task_metrics_process_total" in answer.read().decode()


def test_a_task_shows_where_it_runs_and_what_it_waits_for(
    runner: Runner, application: str, unique_name: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, target = map(unique_name, ("first", "second", "out"))
    runner.create_topics(dict.fromkeys((first, second, target), 1))
    builder = StreamsBuilder()
    builder.stream([first, second], TEXT).to(target, Produced.with_(Serdes.string(), Serdes.string()))
    config = runner.config(application, {"penstock.ui.port": 0, "max.task.idle.ms": 3_600_000})
    runner.write(first, lines(["a"]))
    with KafkaStreams(builder.build(), config, **runner.options()):
        found = re.search(r"http://\S+/", capsys.readouterr().err)
        assert found is not None

        def task() -> Any:
            with urlopen(f"{found[0]}api/v1/tasks", timeout=60) as answer:
                return next(iter(orjson.loads(answer.read())["tasks"]), {"waits_for": []})

        seen = wait_for(lambda: (each := task())["waits_for"] and each)
        assert seen["waits_for"] == [{"topic": second, "partition": 0}]
        assert re.search(r"^thread |\(pid \d+\)$", seen["worker"])
