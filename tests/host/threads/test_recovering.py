"""Internal topics that are deleted while the application runs or is stopped: an error names them, and each way out of
it leads on."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Processor, ProcessorContext, Produced, PunctuationType, Record, Serdes, Stores, StreamsBuilder
from penstock.errors import MissingInternalTopicError, StreamsError
from penstock.host.threads.recovering import accept_topics, plan_recovery, recover_from_state
from penstock.host.threads.resetting import reset
from penstock.plan.topology import Topology
from tests.host.threads.support import Listening
from tests.host.threads.test_host import SECONDS, WordCount
from tests.support.brokers import RunningBroker
from tests.support.waiting import until


@pytest.fixture
def words(broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]) -> WordCount:
    return WordCount(broker, tmp_path, unique_name)


class Ticking(Processor[str, str, str, int]):
    """Counts the ticks of the wall clock in a store, and forwards each count."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        self._ticks = context.get_state_store("ticks")
        context.schedule(20, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def process(self, record: Record[str, str]) -> None:
        """Do nothing: time alone changes the state."""

    def _tick(self, now: int) -> None:
        count = (self._ticks.get("all") or 0) + 1
        self._ticks.put("all", count)
        self.context.forward(Record(self.context.task_id, count, now))


class TickCount(WordCount):
    """As the count of words, but of ticks of the wall clock, by task."""

    def __init__(self, broker: RunningBroker, directory: Path, unique_name: Callable[[str], str]) -> None:
        super().__init__(broker, directory, unique_name)
        self.store = "ticks"
        self.settings["processing.guarantee"] = "exactly_once_v2"

    def topology(self, _: object = None) -> Topology:
        builder = StreamsBuilder()
        store = Stores.persistent_key_value_store(self.store)
        builder.add_state_store(Stores.key_value_store_builder(store, Serdes.string(), Serdes.long()))
        ticked = builder.stream(self.source).process(Ticking, self.store)
        ticked.to(self.sink, Produced.with_(Serdes.string(), Serdes.long()))
        return builder.build()

    def tick(self) -> None:
        """Run until each task has ticked and committed again."""
        before, host = self.counts(), self.host(until_end=False)
        host.start(Listening())
        try:
            assert until(lambda: all(self.counts().get(task, 0) > before.get(task, 0) for task in ("0_0", "0_1")))
        finally:
            assert host.close(60_000)


@pytest.fixture
def ticks(broker: RunningBroker, tmp_path: Path, unique_name: Callable[[str], str]) -> TickCount:
    return TickCount(broker, tmp_path, unique_name)


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


def test_state_without_the_last_punctuations_is_not_written(ticks: TickCount, tmp_path: Path) -> None:
    ticks.write("a", "b")
    ticks.tick()
    here, older = ticks.settings["state.dir"], str(tmp_path / "older")
    shutil.copytree(here, older)
    ticks.tick()
    changelog = lose(ticks, "changelog")
    ticks.settings["state.dir"] = older
    with pytest.raises(StreamsError, match=r"of commit \d+ of the task, and the last one at the same offsets is \d+"):
        recover_from_state(ticks.topology(), ticks.config())
    assert changelog not in ticks.admin.topics()
    ticks.settings["state.dir"] = here
    assert recover_from_state(ticks.topology(), ticks.config()).records == 2
    ticks.tick()
    assert len(ticks.values()) == sum(ticks.counts().values())  # each count of a task once


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
