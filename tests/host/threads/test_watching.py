"""`penstock ui FILE` shows an application on threads that another process runs, from the brokers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import orjson
import pytest

from penstock import KafkaStreams
from penstock.errors import KafkaError, MissingSourceTopicError, StateStoreNotAvailableError, UnsupportedOperationError
from penstock.host.api import State
from penstock.host.threads.watching import UNSEEN, GroupWatch
from penstock.plan.topology import built_topology
from penstock.state.query.queryable import QueryableStoreTypes, StoreQueryParameters
from tests.host.support import Listening, lines, wait_for
from tests.host.test_topologies import word_count
from tests.host.threads.runner import ThreadsRunner
from tests.support.commands import Command
from tests.tools.ui.test_server import address_in

pytestmark = [pytest.mark.one_broker]

PROGRAM = """
from tests.host.test_topologies import word_count
topology = word_count({source!r}, {target!r})
config = {config!r}
"""


def test_it_follows_the_group_and_steers_nothing(
    threads_runner: ThreadsRunner, application: str, unique_name: Callable[[str], str]
) -> None:
    source, target = unique_name("in"), unique_name("out")
    config = threads_runner.config(application)
    topology = word_count(source, target)
    watch, listening = GroupWatch(built_topology(topology, application), config), Listening()
    with pytest.raises(MissingSourceTopicError):
        watch.start(listening)
    threads_runner.create_topics({source: 2, target: 1})
    with pytest.raises(KafkaError, match="There is no group"):
        watch.start(listening)
    threads_runner.write(source, lines(["a b", "b"], partitions=2))
    with KafkaStreams(topology, config):
        wait_for(lambda: sum(each.lag for each in watch.look()) == 0 and len(watch.statistics().workers) == 4)
        watch.start(listening)
        before = watch.statistics().records_in
        threads_runner.write(source, lines(["a"]))
        figures = wait_for(lambda: watch.look() and (found := watch.statistics()).records_in > before and found)
        assert (figures.watched.unseen, figures.watched.state) == (UNSEEN, State.RUNNING)
        assert len(figures.watched.group.members) == 1
        assert set(figures.workers) == {"0_0", "0_1", "1_0", "1_1"}
        assert {str(each.task_id) for each in watch.queries().task_metadata()} == set(figures.workers)
        assert len(watch.measured().lags) == 4
    wait_for(lambda: watch.look() and not watch.statistics().watched.group.members)
    assert watch.statistics().workers == {}
    assert watch.statistics().watched.state is State.NOT_RUNNING
    assert watch.queries().stores().keys() == {"counts"}
    with pytest.raises(StateStoreNotAvailableError, match="does not run in this process"):
        watch.queries().store(StoreQueryParameters("counts", QueryableStoreTypes.key_value_store())).get("a")
    for change in (watch.pause, watch.resume, watch.reset, watch.clean_up):
        with pytest.raises(UnsupportedOperationError, match="Another process runs this application"):
            change()
    assert watch.close(0)


@pytest.mark.slow
def test_the_command_shows_what_brokers_know_and_says_what_they_do_not(
    threads_runner: ThreadsRunner, application: str, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    source, target = unique_name("in"), unique_name("out")
    threads_runner.create_topics({source: 1, target: 1})
    config = threads_runner.config(application)
    file = tmp_path / "program.py"
    file.write_text(PROGRAM.format(source=source, target=target, config=dict(config.given())))
    root = str(Path(__file__).parents[3])
    threads_runner.write(source, lines(["a", "b a"]))
    with KafkaStreams(word_count(source, target), config) as streams:
        wait_for(lambda: sum(each.lag for each in streams.task_metadata()) == 0 and streams.task_metadata())
        with Command(("ui", str(file), "--port", "0"), tmp_path, {"PYTHONPATH": f"{root}/src:{root}"}) as command:
            wait_for(lambda: "shows itself at" in command.output())
            address = address_in(command.output())

            def get(path: str) -> Any:
                with urlopen(f"{address}{path}", timeout=60) as answer:
                    return orjson.loads(answer.read())

            def page(path: str) -> str:
                with urlopen(f"{address}{path}", timeout=60) as answer:
                    return str(answer.read().decode())

            overview = wait_for(lambda: (seen := get("api/v1/overview"))["lag"] == 0 and seen)
            assert (overview["watched"], overview["members"], overview["unseen"]) == (True, 1, UNSEEN)
            hidden = ("records_out", "records_out_per_second", "records_dropped", "errors", "output_age_ms")
            assert {overview[name] for name in hidden} == {None}
            health = [get(path)["state"] for path in ("health/ready?max_lag=0", "health/live")]
            assert [overview["state"], *health] == ["RUNNING"] * 3
            metrics = page("metrics")
            assert f'client_id="{config.client_id()}-watcher"' in metrics
            assert "alive_stream_threads" not in metrics
            threads_runner.write(source, lines(["a"]))
            wait_for(lambda: get("api/v1/overview")["records_in"] == 1)
            history = wait_for(lambda: any((seen := get("api/v1/history"))["records_in_per_second"]) and seen)
            assert set(history["records_out_per_second"]) == {None}
            assert history["lag"][-1] is not None
            tasks = get("api/v1/tasks")
            assert [(each["task"], each["processed"]) for each in tasks["tasks"]] == [("0_0", None), ("1_0", None)]
            assert all(application in each["worker"] for each in tasks["tasks"])
            assert len(tasks["groups"][0]["members"]) == 1
            assert tasks["groups"][0]["members"][0]["member"] in page("tasks")
            assert "Its group has 1 member." in page("")
            for path in ("", "topology", "tasks", "commits", "state", "errors"):
                assert UNSEEN in page(path)
            with pytest.raises(HTTPError, match="503"):
                get("api/v1/stores/counts")
            compared = f"{file} was compared with the internal topics of the brokers."
            assert get("api/v1/changes") == {"compared": compared, "changes": []}
            streams.close()
            wait_for(lambda: get("api/v1/overview")["state"] == "NOT_RUNNING")
            assert "No process runs it" in page("")
            for path in ("health/live", "health/ready"):
                with pytest.raises(HTTPError, match="503") as refused:
                    get(path)
                assert "This process only watches the application" in refused.value.read().decode()
            command.interrupt()
            assert command.nothing_left()
