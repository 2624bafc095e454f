"""A version in a comparison has names, topics and a configuration of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock import Consumed, Produced, Serdes, StreamsBuilder
from penstock.config import StreamsConfig
from penstock.shadow.version import ShadowVersion

STRING = Serdes.string()


def version(tmp_path: Path, **settings: Any) -> ShadowVersion:
    builder = StreamsBuilder()
    stream = builder.stream("in", Consumed.with_(STRING, STRING))
    stream.map_values(len).to("out", produced=Produced.with_(STRING, Serdes.long()))
    stream.to(lambda key, value, context: "chosen", produced=Produced.with_(STRING, STRING))
    keys = {key.replace("_", "."): value for key, value in settings.items()}
    given = StreamsConfig({"application.id": "other", "bootstrap.servers": "localhost:1", **keys}, environment={})
    return ShadowVersion("new", builder.build(), given, "app", tmp_path)


def test_the_configuration_is_apart_from_the_running_application(tmp_path: Path) -> None:
    found = version(
        tmp_path,
        penstock_checkpoint_dir="/shared/app/",
        penstock_ui_port=8090,
        errors_dead_letter_queue_topic_name="dead",
        statestore_cache_max_bytes=1_000,
        poll_ms=5,
    ).config
    assert found["application.id"] == "app-shadow-new"
    assert found["state.dir"] == str(tmp_path)
    assert found["penstock.checkpoint.dir"] == "/shared/app-shadow-new"
    assert found["penstock.ui.port"] is None
    assert found["errors.dead.letter.queue.topic.name"] == "app-shadow-new.output.dead"
    assert found["statestore.cache.max.bytes"] == 0
    assert found["poll.ms"] == 5


def test_sinks_are_found_by_the_topic_of_the_program(tmp_path: Path) -> None:
    found = version(tmp_path)
    (named,), (chosen,) = found.places_of("out"), found.places_of("chosen")
    assert (named.name, chosen.name) == ("KSTREAM-SINK-0000000002", "KSTREAM-SINK-0000000003")
    assert "test_version.py" in str(named.line)
    assert [type(each) for each in found.serdes_of("out")] == [type(STRING), type(Serdes.long())]


def test_a_topic_without_a_sink_has_no_serdes(tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    found = ShadowVersion("old", builder.build(), StreamsConfig({"application.id": "app"}), "app", tmp_path)
    assert (found.serdes_of("dead"), found.places_of("dead")) == ((None, None), ())
