"""The clock of the machine leaps, ahead or back, while an instance runs: it goes on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from penstock import Processor, ProcessorContext, Produced, PunctuationType, Record, Serdes, StreamsBuilder
from penstock_broker.common.clock import SystemClock
from tests.host.support import lines, wait_for
from tests.host.test_topologies import TEXT
from tests.host.threads.runner import ThreadsRunner

DAY_MS = 86_400_000


class Leaping:
    """How much the clock of the machine is ahead."""

    ahead_ms = 0


class Ticking(Processor[bytes, str, bytes, str]):
    """Forwards the wall-clock time, again and again."""

    def init(self, context: ProcessorContext[bytes, str]) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self._tick)

    def _tick(self, now: int) -> None:
        self.context.forward(Record(b"", str(now), 0))

    def process(self, record: Record[bytes, str]) -> None:
        pass


@pytest.mark.one_broker
@pytest.mark.parametrize(("leap_ms", "guarantee"), [(DAY_MS, "exactly_once_v2"), (-DAY_MS, "at_least_once")])
def test_records_are_committed_and_punctuations_made_through_leaps_of_the_clock(
    threads_runner: ThreadsRunner,
    unique_name: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    guarantee: str,
    leap_ms: int,
) -> None:
    source, target, ticks = (unique_name(name) for name in ("in", "out", "ticks"))
    threads_runner.create_topics({source: 1, target: 1, ticks: 1})
    builder = StreamsBuilder()
    stream = builder.stream(source, consumed=TEXT)
    stream.to(target, Produced.with_(value_serde=TEXT.value_serde))
    stream.process(Ticking).to(ticks, Produced.with_(Serdes.bytes(), TEXT.value_serde))
    values = {"default.key.serde": TEXT.key_serde, "processing.guarantee": guarantee, "commit.interval.ms": 50}
    config = threads_runner.config(unique_name("app"), values)
    clock, of_machine = Leaping(), SystemClock.milliseconds
    monkeypatch.setattr(SystemClock, "milliseconds", lambda each: of_machine(each) + clock.ahead_ms)
    with threads_runner.running(builder.build(), config):
        for number, clock.ahead_ms in enumerate((0, leap_ms, 0)):
            before = len(threads_runner.read(ticks))
            threads_runner.write(source, lines([str(number)]))
            wait_for(partial(_has_last, threads_runner, target, b"%d" % number), 20)
            wait_for(partial(_has_ticked, threads_runner, ticks, before, SystemClock().milliseconds()), 20)


def _has_last(runner: ThreadsRunner, topic: str, value: bytes) -> bool:
    return [each.value for each in runner.read(topic)][-1:] == [value]


def _has_ticked(runner: ThreadsRunner, topic: str, before: int, now_ms: int) -> bool:
    """Return whether one of the ticks after the first `before` is of about `now_ms`."""
    ticks = [int(each.value or b"0") for each in runner.read(topic)]
    return any(abs(tick - now_ms) < DAY_MS // 2 for tick in ticks[before:])
