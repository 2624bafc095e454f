"""The file for KEDA has fields that KEDA knows, and asks for metrics that applications have."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pytest
import yaml

from penstock.application.prometheus import exposition
from penstock.config.keys import KEYS
from penstock.host.api import HostStatistics
from penstock.metrics.host_metrics import NOT_MEASURED, streams_metrics
from penstock.record import TopicPartition
from tests.docs.pages import ROOT, fences

TEXT: Final = (ROOT / "deploy" / "keda.yaml").read_text(encoding="utf-8")
DEPLOYMENT, SCALED_OBJECT = yaml.safe_load_all(TEXT)
SPEC: Final = SCALED_OBJECT["spec"]
TRIGGERS: Final = {trigger["type"]: trigger["metadata"] for trigger in SPEC["triggers"]}

FIELDS: Final[Mapping[tuple[str, ...], tuple[set[str], set[str]]]] = {
    (): (
        {"scaleTargetRef", "triggers"},
        {
            "pollingInterval",
            "initialCooldownPeriod",
            "cooldownPeriod",
            "idleReplicaCount",
            "minReplicaCount",
            "maxReplicaCount",
            "advanced",
            "fallback",
        },
    ),
    ("scaleTargetRef",): ({"name"}, {"apiVersion", "kind", "envSourceContainerName"}),
    ("fallback",): ({"failureThreshold", "replicas"}, {"behavior"}),
    ("advanced",): (
        set(),
        {"horizontalPodAutoscalerConfig", "restoreToOriginalReplicaCount", "scalingModifiers"},
    ),
    ("advanced", "horizontalPodAutoscalerConfig"): (set(), {"behavior", "name"}),
    ("advanced", "horizontalPodAutoscalerConfig", "behavior"): (set(), {"scaleUp", "scaleDown"}),
    **{
        ("advanced", "horizontalPodAutoscalerConfig", "behavior", direction): (
            set(),
            {"stabilizationWindowSeconds", "policies", "selectPolicy", "tolerance"},
        )
        for direction in ("scaleUp", "scaleDown")
    },
}
"""The required and the optional fields of KEDA's ScaledObjectSpec (keda.sh/v1alpha1), and of the HPA in it."""

METADATA: Final[Mapping[str, tuple[set[str], set[str]]]] = {
    "prometheus": (
        {"serverAddress", "query", "threshold"},
        {
            "activationThreshold",
            "namespace",
            "customHeaders",
            "ignoreNullValues",
            "queryParameters",
            "unsafeSsl",
            "timeout",
            "authModes",
        },
    ),
    "kafka": (
        {"bootstrapServers", "consumerGroup"},
        {
            "topic",
            "lagThreshold",
            "activationLagThreshold",
            "offsetResetPolicy",
            "allowIdleConsumers",
            "scaleToZeroOnInvalidOffset",
            "excludePersistentLag",
            "limitToPartitionsWithLag",
            "ensureEvenDistributionOfPartitions",
            "version",
            "partitionLimitation",
            "sasl",
            "tls",
        },
    ),
}
"""The required and the optional fields of the metadata of both triggers."""


def environment() -> Iterator[tuple[str, str]]:
    [container] = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    yield from ((each["name"], each["value"]) for each in container["env"])


def test_the_page_shows_the_file() -> None:
    assert ("yaml", TEXT) in fences("docs/platforms.md")


@pytest.mark.parametrize("path", FIELDS, ids=".".join)
def test_the_fields_are_those_of_keda(path: tuple[str, ...]) -> None:
    part: Any = SPEC
    for name in path:
        part = part[name]
    required, optional = FIELDS[path]
    assert required <= part.keys() <= required | optional


def test_policies_have_the_fields_of_the_hpa() -> None:
    behavior = SPEC["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    for rules in behavior.values():
        assert 0 <= rules["stabilizationWindowSeconds"] <= 3600
        for policy in rules["policies"]:
            assert policy.keys() == {"type", "value", "periodSeconds"}
            assert policy["type"] in ("Pods", "Percent")
            assert 0 < policy["periodSeconds"] <= 1800


@pytest.mark.parametrize("kind", METADATA)
def test_each_trigger_has_the_metadata_of_its_scaler(kind: str) -> None:
    required, optional = METADATA[kind]
    assert required <= TRIGGERS[kind].keys() <= required | optional
    assert all(isinstance(value, str) for value in TRIGGERS[kind].values()), "KEDA reads texts only"


def test_the_query_asks_for_the_lag_that_an_application_shows() -> None:
    query = TRIGGERS["prometheus"]["query"]
    measured = NOT_MEASURED._replace(lags={TopicPartition("orders", 0): 5})
    metrics = streams_metrics("client", {}, HostStatistics(), measured)
    text = exposition(lambda: metrics)[0].decode()
    [(name, selected)] = re.findall(r"(kafka_\w+)\{(\w+)=", query)
    [labels] = re.findall(rf"^{name}\{{(.*)\}} 5\.0$", text, re.MULTILINE)
    [grouped] = re.findall(r"max by \(([\w, ]+)\)", query)
    assert set(grouped.split(", ")) == {"topic", "partition"} <= set(re.findall(r"(\w+)=", labels))
    assert selected == "job", "Prometheus adds this label"
    assert query.startswith("sum("), "KEDA accepts one value only"


def test_the_scaled_object_fits_the_deployment() -> None:
    assert (SCALED_OBJECT["apiVersion"], SCALED_OBJECT["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    assert SPEC["scaleTargetRef"]["name"] == DEPLOYMENT["metadata"]["name"]
    assert 1 <= SPEC["minReplicaCount"] < SPEC["maxReplicaCount"]
    assert SPEC["fallback"]["replicas"] <= SPEC["maxReplicaCount"]
    assert "replicas" not in DEPLOYMENT["spec"], "an apply would undo the work of KEDA"
    given = dict(environment())
    known = {"PENSTOCK_" + key.removeprefix("penstock.").replace(".", "_").upper() for key in KEYS}
    assert given.keys() <= known
    assert TRIGGERS["kafka"]["bootstrapServers"] == given["PENSTOCK_BOOTSTRAP_SERVERS"]


def test_an_instance_is_not_stopped_before_it_can_have_its_tasks() -> None:
    scale_down = SPEC["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
    assert scale_down["stabilizationWindowSeconds"] * 1000 > KEYS["probing.rebalance.interval.ms"].default
