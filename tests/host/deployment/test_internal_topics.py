"""The settings with which an application creates its own topics."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.config import StreamsConfig
from penstock.dsl.builder import StreamsBuilder
from penstock.dsl.options import Materialized
from penstock.host.deployment.internal_topics import internal_topics
from penstock.host.deployment.layout import layout_of
from penstock.plan.topology import built_topology
from penstock.windows import TimeWindows

DAY = 24 * 60 * 60 * 1000


def configs(own: Mapping[str, str], **settings: object) -> dict[str, Mapping[str, str]]:
    """Return the settings of the changelogs of a count, with `own` settings, and of one by windows of one day."""
    builder = StreamsBuilder()
    by_key = builder.stream("in").group_by_key()
    by_key.count(Materialized.as_("all").with_logging_enabled(own))
    windows = Materialized.as_("windows").with_logging_enabled(own)
    by_key.windowed_by(TimeWindows.of_size_with_no_grace(DAY)).count(windows)
    keys = {key.replace("__", "."): value for key, value in settings.items()}
    config = StreamsConfig({"application.id": "app", "bootstrap.servers": "nowhere:1", **keys}, environment={})
    layout = layout_of(built_topology(builder.build(), "app"), config, {"in": 1})
    return {topic.name: topic.config for topic in internal_topics(layout)}


def test_changelogs_of_windows_are_kept_a_day_longer_than_the_store_unless_the_key_says_otherwise() -> None:
    assert configs({})["app-windows-changelog"]["retention.ms"] == str(2 * DAY)
    longer = configs({}, windowstore__changelog__additional__retention__ms=5)["app-windows-changelog"]
    assert (longer["retention.ms"], longer["cleanup.policy"]) == (str(DAY + 5), "compact,delete")


def test_settings_of_all_topics_override_those_of_kafka_and_those_of_a_store_override_both() -> None:
    found = configs({}, topic__retention__ms=7, topic__segment__ms=9)
    assert found["app-all-changelog"]["retention.ms"] == "7"
    assert found["app-windows-changelog"]["retention.ms"] == str(2 * DAY)
    assert {each["segment.ms"] for each in found.values()} == {"9"}
    own = configs({"retention.ms": "8"}, topic__retention__ms=7)
    assert {each["retention.ms"] for each in own.values()} == {"8"}
