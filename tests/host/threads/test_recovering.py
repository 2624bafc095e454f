"""Internal topics that are deleted while the application runs or is stopped: an error names them, and each way out of
it leads on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.errors import MissingInternalTopicError, StreamsError
from penstock.host.threads.recovering import accept_topics, plan_recovery, recover_from_state
from penstock.host.threads.resetting import reset
from tests.host.threads.support import Listening
from tests.host.threads.test_host import SECONDS, WordCount
from tests.support.brokers import RunningBroker
from tests.support.waiting import until


@pytest.fixture
def words(broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]) -> WordCount:
    return WordCount(broker, tmp_path, unique_name)


def lose(words: WordCount, suffix: str) -> str:
    """Delete an internal topic, and return its name."""
    topic = f"{words.app}-{words.store}-{suffix}"
    words.admin.delete_topics([topic])
    assert until(lambda: topic not in words.admin.topics())
    return topic


def refused(words: WordCount, topic: str) -> None:
    """Check that a start names the topic, and does not make it again."""
    host = words.host()
    with pytest.raises(MissingInternalTopicError, match=topic):
        host.start(Listening())
    assert topic not in words.admin.topics()


def test_a_changelog_that_was_deleted_is_written_again_from_the_state(words: WordCount) -> None:
    words.settings["processing.guarantee"] = "exactly_once_v2"
    words.write("a b", "a c")
    words.run_to_end(words.host())
    changelog = lose(words, "changelog")
    refused(words, changelog)
    assert [each.name for each in plan_recovery(words.topology(), words.config()).lost] == [changelog]
    assert recover_from_state(words.topology(), words.config()).records == 3
    assert recover_from_state(words.topology(), words.config()).lost == ()
    words.write("a", "a")
    words.run_to_end(words.host())
    assert words.counts() == {"a": 4, "b": 1, "c": 1}


def test_state_in_another_format_is_not_written(words: WordCount) -> None:
    words.settings["dsl.store.format"] = "headers"
    words.write("a b", "a c")
    words.run_to_end(words.host())
    changelog = lose(words, "changelog")
    words.settings["dsl.store.format"] = "default"
    with pytest.raises(
        StreamsError, match=r"has the layout .* with headers.*: use the program and the dsl.store.format"
    ):
        recover_from_state(words.topology(), words.config())
    assert changelog not in words.admin.topics()
    words.settings["dsl.store.format"] = "headers"
    assert recover_from_state(words.topology(), words.config()).records == 3
    words.settings["dsl.store.format"] = "default"
    words.write("a", "a")
    words.run_to_end(words.host())
    assert words.counts() == {"a": 4, "b": 1, "c": 1}


def test_state_that_is_not_that_of_the_last_commit_is_not_written(words: WordCount, tmp_path: Path) -> None:
    words.write("a b", "a c")
    words.run_to_end(words.host())
    words.settings["state.dir"], here = str(tmp_path / "other"), words.settings["state.dir"]
    words.write("a", "a")
    words.run_to_end(words.host())
    changelog = lose(words, "changelog")
    words.settings["state.dir"] = here
    done = recover_from_state(words.topology(), words.config())
    (why,) = done.left.values()
    assert re.match(r"its state here is of offset \d+ of .*-repartition-\d, and the group has committed \d+", why)
    assert len(done.tasks) == 1
    words.settings["state.dir"] = str(tmp_path / "third")
    with pytest.raises(StreamsError, match="its state is not here"):
        recover_from_state(words.topology(), words.config())
    with pytest.raises(MissingInternalTopicError, match=rf"{changelog} .*, which was created again"):
        words.host().start(Listening())


def test_without_a_repartition_topic_the_topics_are_accepted_or_all_starts_over(words: WordCount) -> None:
    words.write("a b", "a c")
    words.run_to_end(words.host())
    repartition = lose(words, "repartition")
    refused(words, repartition)
    with pytest.raises(StreamsError, match=repartition):
        recover_from_state(words.topology(), words.config())
    accept_topics(words.topology(), words.config())
    words.write("a", "a")
    words.run_to_end(words.host())
    assert words.counts() == {"a": 4, "b": 1, "c": 1}
    refused(words, lose(words, "repartition"))
    reset(words.topology(), words.config())
    words.run_to_end(words.host())
    assert words.counts() == {"a": 4, "b": 1, "c": 1}


@pytest.mark.parametrize("suffix", ["changelog", "repartition"])
def test_an_application_whose_topic_is_deleted_while_it_runs_ends_with_its_name_and_leads_on(
    words: WordCount, suffix: str
) -> None:
    words.settings |= {"processing.guarantee": "exactly_once_v2", "metadata.max.age.ms": 100}
    host, listening = words.host(until_end=False), Listening()
    host.start(listening)
    try:
        words.write("a b", "a c")
        assert until(lambda: words.counts() == {"a": 2, "b": 1, "c": 1})
        topic = lose(words, suffix)
        words.write("a", "a")
        assert listening.ended.wait(SECONDS)
        assert isinstance(listening.error, MissingInternalTopicError)
        assert topic in str(listening.error)
    finally:
        assert host.close(60_000)
    way_out = recover_from_state if suffix == "changelog" else accept_topics
    way_out(words.topology(), words.config())
    words.run_to_end(words.host())
    assert words.counts() == {"a": 4, "b": 1, "c": 1}
