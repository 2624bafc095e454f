"""The files of deploy for containers say what Penstock understands, and the page on platforms shows them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from penstock.config import StreamsConfig
from penstock.config.keys import KEYS
from tests.docs.pages import ROOT, fences, parsed

FILES = {
    "deploy/docker/Dockerfile": "dockerfile",
    "deploy/kubernetes/threads.yaml": "yaml",
    "deploy/kubernetes/spark-application.yaml": "yaml",
}
KNOWN = {"PENSTOCK_" + key.removeprefix("penstock.").replace(".", "_").upper() for key in KEYS}


def documents(name: str) -> dict[str, Mapping[str, Any]]:
    """Return the objects of a file for Kubernetes, by kind."""
    text = (ROOT / "deploy" / "kubernetes" / name).read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def dockerfile() -> Iterator[tuple[str, str]]:
    """Yield the instructions of the Dockerfile with their arguments."""
    text = (ROOT / "deploy" / "docker" / "Dockerfile").read_text(encoding="utf-8")
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line and not line.startswith("#"):
            instruction, _, rest = line.partition(" ")
            yield instruction, rest


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_the_file(name: str) -> None:
    assert (FILES[name], (ROOT / name).read_text(encoding="utf-8")) in fences("docs/platforms.md")


def test_the_image_runs_an_application_on_the_threads_host() -> None:
    instructions = dict(dockerfile())
    assert parsed(" ".join(json.loads(instructions["CMD"]))).params
    config = StreamsConfig(environment=dict(word.split("=") for word in instructions["ENV"].split()))
    assert (config["penstock.host"], config["state.dir"]) == ("threads", instructions["VOLUME"])
    assert str(config["penstock.ui.port"]) == instructions["EXPOSE"]


def test_the_instances_in_kubernetes_have_their_own_names_and_the_port_of_the_image() -> None:
    found = documents("threads.yaml")
    pod = found["StatefulSet"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    arguments = parsed(shlex.join(container["args"])).params
    assert arguments["config"] == ["group.instance.id=$(POD_NAME)"]
    assert {each["name"] for each in container["env"]} - {"POD_NAME"} <= KNOWN
    image = dict(dockerfile())
    [port] = container["ports"]
    assert str(port["containerPort"]) == str(found["Service"]["spec"]["ports"][0]["port"]) == image["EXPOSE"]
    assert {probe["httpGet"]["port"] for name, probe in container.items() if name.endswith("Probe")} == {port["name"]}
    assert [each["mountPath"] for each in container["volumeMounts"]] == [image["VOLUME"]]
    assert f"--uid {pod['securityContext']['runAsUser']} " in image["RUN"]


def test_driver_and_executors_of_the_spark_operator_share_the_checkpoint() -> None:
    spec = documents("spark-application.yaml")["SparkApplication"]["spec"]
    environment = {each["name"]: each["value"] for each in spec["driver"]["env"]}
    config = StreamsConfig({"application.id": "orders"}, environment)
    assert environment.keys() <= KNOWN
    [mount] = spec["driver"]["volumeMounts"]
    assert str(config["penstock.checkpoint.dir"]).startswith(mount["mountPath"] + "/")
    assert spec["executor"]["volumeMounts"] == [mount]
    assert [volume["name"] for volume in spec["volumes"]] == [mount["name"]]
