"""What all contestants do: the word count of the Kafka Streams documentation, and the texts that they count.

Here live the topology and the generator of lines. Not here: who runs it, and how it is measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Final

from penstock import Materialized, Serdes, StreamsBuilder, Topology

INPUT: Final = "benchmark-lines"
OUTPUT: Final = "benchmark-counts"
DISTINCT_WORDS: Final = 10_000

SERDES: Final = {"default.key.serde": Serdes.string(), "default.value.serde": Serdes.string()}


def word_count(input_topic: str = INPUT, output_topic: str = OUTPUT) -> Topology:
    """Return the word count: two sub-topologies with a repartition topic between them."""
    builder = StreamsBuilder()
    lines = builder.stream(input_topic)
    words = lines.flat_map_values(lambda line: line.lower().split())
    counts = words.group_by(lambda key, word: word).count(Materialized.as_("counts-store"))
    counts.to_stream().to(output_topic)
    return builder.build()


def levels(number: int, input_topic: str, output_topic: str) -> Topology:
    """Return a topology of one, two or three sub-topologies in a row.

    One only turns values to upper case, two is the word count, three counts how many words share a count.
    """
    builder = StreamsBuilder()
    lines = builder.stream(input_topic)
    if number == 1:
        lines.map_values(str.upper).to(output_topic)
        return builder.build()
    words = lines.flat_map_values(lambda line: line.lower().split())
    counts = words.group_by(lambda key, word: word).count(Materialized.as_("counts-store")).to_stream()
    if number == 3:
        counts = counts.group_by(lambda word, count: str(count)).count(Materialized.as_("sizes-store")).to_stream()
    counts.to(output_topic)
    return builder.build()


def repeated_words(seed: int = 1) -> Callable[[], str]:
    """Return a function that gives one of DISTINCT_WORDS words at each call, in an order that the seed decides."""
    draw = random.Random(seed)
    words = [f"word{number}" for number in range(DISTINCT_WORDS)]
    return lambda: words[int(draw.random() * DISTINCT_WORDS)]


def distinct_words() -> Callable[[], str]:
    """Return a function that gives another word at each call."""
    numbers = iter(range(1 << 62))
    return lambda: f"word{next(numbers)}"


WORDS: Final[dict[str, Callable[[], Callable[[], str]]]] = {
    "10,000 words": repeated_words,
    "all distinct": distinct_words,
}
"""The two texts, by the name that tables show."""


def lines_of(text: str, lines: int, words_per_line: int) -> Iterator[bytes]:
    """Yield `lines` lines of the text of this name, as UTF-8."""
    word = WORDS[text]()
    for _ in range(lines):
        yield " ".join([word() for _ in range(words_per_line)]).encode()
