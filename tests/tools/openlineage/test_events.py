"""The events of a run, by the schemas that OpenLineage publishes."""

from __future__ import annotations

import json

import pytest
from jsonschema import ValidationError

pytest.importorskip("openlineage.client", reason="openlineage-python is not installed")

from openlineage.client.event_v2 import RunEvent, RunState
from openlineage.client.serde import Serde

from penstock import __version__
from penstock.config import StreamsConfig
from penstock.plan.lineage import lineage_by_name
from penstock.tools.openlineage.datasets import DatasetNames, Datasets
from penstock.tools.openlineage.events import RunEvents
from penstock_broker.common.clock import MockClock
from tests.tools.openlineage.support import Event, check
from tests.tools.openlineage.test_datasets import CONFIG, NAMES, totals

SETTINGS = StreamsConfig({**CONFIG, "penstock.openlineage.namespace": "sales"}, environment={})
DATASETS = Datasets(lineage_by_name({"": totals()}, SETTINGS).values(), (), NAMES)


def as_data(event: RunEvent) -> Event:
    data: Event = json.loads(Serde.to_json(event))
    check(data)
    return data


def test_an_event_names_run_job_and_time() -> None:
    clock = MockClock(1_700_000_000_123)
    events = RunEvents(SETTINGS, clock)
    event = as_data(events.event(RunState.START, DATASETS))
    assert event["eventTime"] == "2023-11-14T22:13:20.123+00:00"
    assert event["eventType"] == "START"
    assert event["producer"] == f"pkg:pypi/penstock-streams@{__version__}"
    assert (event["job"]["namespace"], event["job"]["name"]) == ("sales", "shop")
    job_type = event["job"]["facets"]["jobType"]
    assert (job_type["processingType"], job_type["integration"]) == ("STREAMING", "PENSTOCK")
    assert event["run"]["facets"]["processing_engine"]["version"] == __version__
    assert [each["name"] for each in event["inputs"]] == ["orders"]
    assert [each["name"] for each in event["outputs"]] == ["totals", "counts"]
    clock.advance(1_000)
    later = as_data(events.event(RunState.RUNNING, DATASETS))
    assert later["run"]["runId"] == event["run"]["runId"] == events.run_id
    assert later["eventTime"] == "2023-11-14T22:13:21.123+00:00"
    assert RunEvents(SETTINGS, clock).run_id != events.run_id


def test_a_failure_has_its_message_and_its_stack() -> None:
    try:
        raise ValueError("no such order")
    except ValueError as error:
        event = as_data(RunEvents(SETTINGS, MockClock()).event(RunState.FAIL, DATASETS, error))
    facet = event["run"]["facets"]["errorMessage"]
    assert facet["message"] == "ValueError: no such order"
    assert facet["programmingLanguage"] == "python"
    assert 'raise ValueError("no such order")' in facet["stackTrace"]


def test_a_long_message_is_cut() -> None:
    event = as_data(RunEvents(SETTINGS, MockClock()).event(RunState.FAIL, DATASETS, ValueError("x" * 1_000_000)))
    assert len(json.dumps(event)) < 50_000


def test_the_schemas_reject_other_events() -> None:
    event = as_data(RunEvents(SETTINGS, MockClock()).event(RunState.START, DATASETS))
    event["outputs"][0]["facets"]["lineage"]["inputs"][0].pop("type")
    with pytest.raises(ValidationError):
        check(event)


def test_an_empty_application_has_no_datasets() -> None:
    datasets = Datasets([], (), DatasetNames("kafka:9092", "shop", has_changelogs=True))
    event = as_data(RunEvents(SETTINGS, MockClock()).event(RunState.RUNNING, datasets))
    assert event["inputs"] == event["outputs"] == []
