"""The emitter follows the life of an application, and never holds it up."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import pytest

from penstock import KafkaStreams, Topology, extras
from penstock.errors import ConfigError, StreamsError
from penstock.host.api import State
from penstock.named_topologies import KafkaStreamsNamedTopologyWrapper
from tests.support.waiting import until
from tests.test_streams import CONFIG, TestHost, host, topology

pytest.importorskip("openlineage.client", reason="openlineage-python is not installed")

from openlineage.client import OpenLineageClient

from tests.tools.openlineage.support import Receiver

__all__ = ["host"]


@pytest.fixture(autouse=True)
def _no_configuration_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("OPENLINEAGE")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def started(host: TestHost, config: dict[str, Any]) -> KafkaStreams:
    streams = KafkaStreams(topology(), {**CONFIG, **config})
    streams.start()
    host.told().on_running()
    return streams


def test_a_run_has_events_from_its_start_to_its_end(host: TestHost, receiver: Receiver) -> None:
    config = {**receiver.config(), "penstock.openlineage.interval.ms": 1_000}
    streams = started(host, config)
    assert until(lambda: receiver.states()[:2] == ["START", "RUNNING"])
    assert streams.close()
    assert receiver.states()[-1] == "COMPLETE"
    assert set(receiver.states()[1:-1]) == {"RUNNING"}
    assert len({event["run"]["runId"] for event in receiver.events}) == 1
    for event in receiver.events:
        assert event["job"]["name"] == "app"
        assert [each["name"] for each in event["inputs"]] == ["in"]
        assert [each["name"] for each in event["outputs"]] == ["out"]


def test_an_error_of_the_application_ends_the_run_before_close(host: TestHost, receiver: Receiver) -> None:
    streams = started(host, receiver.config())
    host.fails(StreamsError("no broker answers"))
    assert until(lambda: receiver.states() == ["START", "FAIL"])
    assert receiver.events[-1]["run"]["facets"]["errorMessage"]["message"].endswith("no broker answers")
    streams.close()
    assert receiver.states() == ["START", "FAIL"]


def test_a_failed_start_is_a_failed_run(host: TestHost, receiver: Receiver) -> None:
    host.refusal = StreamsError("no topic")
    with pytest.raises(StreamsError, match="no topic"):
        KafkaStreams(topology(), {**CONFIG, **receiver.config()}).start()
    assert receiver.states() == ["START", "FAIL"]


def test_the_end_of_the_input_completes_the_run(host: TestHost, receiver: Receiver) -> None:
    streams = started(host, receiver.config())
    host.told().on_stopped()
    assert until(lambda: receiver.states() == ["START", "COMPLETE"])
    streams.close()


def test_an_edit_starts_another_run_with_the_changed_topology(
    host: TestHost, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.savepoints.topics_of", lambda config: {})
    streams = started(host, {"penstock.host": "threads", **receiver.config()})
    streams.edit(Topology().add_source("source", "in").add_sink("sink", "other", "source"))
    assert streams.close()
    assert receiver.states() == ["START", "COMPLETE", "START", "COMPLETE"]
    runs = [event["run"]["runId"] for event in receiver.events]
    assert runs[0] == runs[1] != runs[2] == runs[3]
    assert [event["outputs"][0]["name"] for event in receiver.events] == ["out", "out", "other", "other"]


def test_named_topologies_are_one_job(host: TestHost, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [host, TestHost()]
    monkeypatch.setattr(
        "penstock.named_topologies.open_host", lambda *given, turns, **options: hosts.pop(0).open(*given, **options)
    )
    config = {**CONFIG, **receiver.config(), "penstock.openlineage.interval.ms": 1_000}
    streams = KafkaStreamsNamedTopologyWrapper(config)
    first = streams.new_named_topology_builder("first")
    first.stream("a").to("b")
    streams.start(first.build())
    assert until(lambda: "START" in receiver.states())
    second = streams.new_named_topology_builder("second")
    second.stream("c").to("d")
    streams.add_named_topology(second.build()).all().result()
    assert until(lambda: [each["name"] for each in receiver.events[-1]["inputs"]] == ["a", "c"])
    streams.close()
    assert {event["job"]["name"] for event in receiver.events} == {"app"}


def test_failures_are_logged_once_and_stop_nothing(
    host: TestHost, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver.status = 500
    config = {**receiver.config(retry={"total": 1, "backoff_factor": 0}), "penstock.openlineage.interval.ms": 1_000}
    streams = started(host, config)
    assert until(lambda: receiver.requests >= 4)  # START and RUNNING, twice each
    assert streams.state() is State.RUNNING
    receiver.status = 201
    assert until(lambda: "RUNNING" in receiver.states())
    assert streams.close()
    assert receiver.states()[-1] == "COMPLETE"
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    [warning] = warnings
    assert warning.startswith("OpenLineage does not get the event START of the run ")
    assert "OpenLineage gets the events of app again." in caplog.messages


def test_a_receiver_that_never_answers_does_not_hold_up_the_end(
    host: TestHost, receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.tools.openlineage.emitter._CLOSE_SECONDS", 0.1)
    receiver.answers.clear()
    streams = started(host, receiver.config(timeout=300))
    assert until(lambda: receiver.requests == 1)
    assert streams.close()
    assert streams.state() is State.NOT_RUNNING
    assert any("its receiver has not taken it in 0.1 s" in message for message in caplog.messages)


def test_close_waits_no_longer_than_it_may(
    host: TestHost, receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    receiver.answers.clear()
    streams = started(host, receiver.config(timeout=300))
    assert until(lambda: receiver.requests == 1)
    assert streams.close(200)
    [waited] = re.findall(r"its receiver has not taken it in ([0-9.]+) s", caplog.text)
    assert float(waited) <= 0.2


def test_events_go_to_a_file(host: TestHost, tmp_path: Path) -> None:
    transport = {"type": "file", "log_file_path": str(tmp_path / "events"), "append": True}
    text = json.dumps({"transport": transport})
    started(host, {"penstock.openlineage.enabled": True, "penstock.openlineage.config": text}).close()
    lines = (tmp_path / "events").read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "COMPLETE"]


def test_the_file_of_the_client_is_used(host: TestHost, tmp_path: Path) -> None:
    (tmp_path / "openlineage.yml").write_text("transport: {type: file, log_file_path: events, append: true}")
    started(host, {"penstock.openlineage.enabled": True}).close()
    assert (tmp_path / "events").exists()


def test_a_wrong_transport_ends_the_start(host: TestHost) -> None:
    config = {"penstock.openlineage.enabled": True, "penstock.openlineage.config": {"transport": {"type": "http"}}}
    streams = KafkaStreams(topology(), {**CONFIG, **config})
    with pytest.raises(ConfigError, match=r"^The client of OpenLineage cannot be created from penstock\.openlineage"):
        streams.start()
    assert host.calls == []


def test_an_unknown_transport_is_refused_with_the_known_ones(host: TestHost) -> None:
    config = {"penstock.openlineage.enabled": True, "penstock.openlineage.config": {"transport": {"type": "htp"}}}
    with pytest.raises(
        ConfigError, match=r"The type of the transport is the path of a class, or one of .*file, .*http"
    ):
        KafkaStreams(topology(), {**CONFIG, **config}).start()
    assert host.calls == []


@pytest.mark.parametrize(
    "transport",
    [
        {"url": "http://127.0.0.1:1", "auth": {"type": "api_key", "apiKey": "s3cret\n"}},
        {"url": "http://127.0.0.1:1", "custom_headers": {"X-Token": "s3cret\n"}},
        {"url": "http://127.0.0.1:1", "endpoint": "api?key=s3cret"},
        {"url": "http://user:s3cret@127.0.0.1:70000"},
    ],
)
def test_a_failure_is_told_without_secrets(
    host: TestHost, transport: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    given = {"transport": {"type": "http", "retry": {"total": 0}, **transport}}
    config = {"penstock.openlineage.enabled": True, "penstock.openlineage.config": given}
    try:
        started(host, config).close()
    except ConfigError as error:
        told = "".join(traceback.format_exception(error))
    else:
        told = caplog.text
    assert "***" in told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("transport: {type: http, url: 's3cret.example:1'}", "ValueError: Need valid url"),
        ("transport: {type: http, url: 'http://user:s3cret@127.0.0.1:70000'}", "ValueError: Need valid url"),
        ("transport: {type: kafka, topic: t, config: {security.protocol: s3cret}}", "***"),
        ("transport: {type: kafka, topic: t, config: {acks: 70417041}}", "***"),
        ("filters: [s3cret]", "Its message is not shown"),
    ],
)
def test_a_client_that_cannot_be_created_is_told_without_secrets_of_its_file(
    host: TestHost, tmp_path: Path, content: str, shown: str
) -> None:
    (tmp_path / "openlineage.yml").write_text(content)
    streams = KafkaStreams(topology(), {**CONFIG, "penstock.openlineage.enabled": True})
    with pytest.raises(ConfigError) as refused:
        streams.start()
    told = "".join(traceback.format_exception(refused.value))
    assert shown in told
    assert "s3cret" not in told
    assert "70417041" not in told


def test_a_client_that_cannot_be_closed_does_not_disturb_the_end(
    host: TestHost, receiver: Receiver, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: OpenLineageClient, timeout: float) -> bool:
        raise RuntimeError("no connection")

    monkeypatch.setattr(OpenLineageClient, "close", refuse)
    assert started(host, receiver.config()).close()
    assert receiver.states() == ["START", "COMPLETE"]
    assert any("its client cannot be closed: RuntimeError: no connection." in each for each in caplog.messages)


def test_off_it_imports_nothing() -> None:
    program = (
        "import sys, penstock.streams, penstock.host.threads.host, penstock.testing\n"
        "print([name for name in sys.modules if 'openlineage' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.strip() == "[]"


def test_where_the_package_is_missing_the_extra_is_named(host: TestHost, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_openlineage(module: str) -> None:
        raise ModuleNotFoundError("No module named 'openlineage'", name="openlineage")

    monkeypatch.setattr(extras, "import_module", no_openlineage)
    monkeypatch.delitem(sys.modules, "openlineage", raising=False)
    streams = KafkaStreams(topology(), {**CONFIG, "penstock.openlineage.enabled": True})
    with pytest.raises(ConfigError, match=r"pip install 'penstock-streams\[openlineage\]'\.$"):
        streams.start()
    assert host.calls == []
