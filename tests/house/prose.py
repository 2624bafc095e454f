"""Counts phrases of stilted English in docstrings, comments and error messages, per 10,000 words.

    python -m tests.house.prose [PHRASE]

prints the counts, or the lines that contain a phrase.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.house.limits import Module, modules


class Phrase(NamedTuple):
    """A phrase that plain English seldom needs.

    Args:
        pattern: finds it.
        ceiling: most occurrences per 10,000 words: five times those of the library of well-written ones that has most.
    """

    pattern: re.Pattern[str]
    ceiling: float


def _phrase(pattern: str, ceiling: float) -> Phrase:
    return Phrase(re.compile(pattern), ceiling)


PHRASES: Final[Mapping[str, Phrase]] = {
    "what as a noun": _phrase(r"\b[Ww]hat (?:is|are|it|they|the|a|was|were|has|have|its|their)\b", 7.0),
    "none": _phrase(r"(?<![`.\w])none\b(?![`=])", 5.5),
    "have or let somebody do": _phrase(r"\b(?:[Hh]ave|has|[Ll]et|lets) (?:the|a|an|its|it|them|each) \w+ \w+", 76.0),
    "of which": _phrase(r"\b(?:of which|for whom|of whom|to which|whose)\b", 24.5),
    "where there is": _phrase(r"\b[Ww]here (?:that|there|it|one|nobody|they) \b", 6.0),
    "behind": _phrase(r"\bbehind\b", 3.0),
    "stands": _phrase(r"\b[Ss]tands?\b", 1.0),
    "Take": _phrase(r"^\s*Take (?:the|what|a|an)\b", 0.0),
    "tell": _phrase(r"\b(?:tells?|told)\b", 12.0),
    "nobody": _phrase(r"\b[Nn]obody\b", 0.0),
    "beside": _phrase(r"\bbeside\b", 0.0),
}


class Text(NamedTuple):
    """A docstring, a comment or the text of an error, with the place of its first line."""

    module: str
    line: int
    text: str


def texts(found: Sequence[Module]) -> Iterator[Text]:
    """Yield all texts of the modules."""
    for module in found:
        for node in ast.walk(module.tree):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                    yield Text(module.name, line, text)
                case ast.Raise(exc=ast.Call(args=arguments), lineno=line):
                    yield Text(module.name, line, " ".join(_constants(arguments)))
        for token in tokenize.generate_tokens(io.StringIO(module.text).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa")):
                yield Text(module.name, token.start[0], token.string)


def _constants(arguments: list[ast.expr]) -> Iterator[str]:
    for argument in arguments:
        for node in ast.walk(argument):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def per_ten_thousand_words(found: list[Text]) -> dict[str, float]:
    """Return how often each phrase occurs in 10,000 words."""
    words = sum(len(text.text.split()) for text in found)
    return {
        name: 10_000 * sum(len(phrase.pattern.findall(text.text)) for text in found) / max(words, 1)
        for name, phrase in PHRASES.items()
    }


def main(arguments: list[str]) -> None:
    """Print the counts, or the texts that contain a phrase."""
    everything = list(texts(modules()))
    if not arguments:
        for name, count in per_ten_thousand_words(everything).items():
            print(f"{name:25} {count:6.1f}, at most {PHRASES[name].ceiling}")
    for name in arguments:
        for text in everything:
            for found in PHRASES[name].pattern.finditer(text.text):
                at = text.line + text.text[: found.start()].count("\n")
                print(f"{text.module}:{at}: {text.text[max(0, found.start() - 60) : found.end() + 60]!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
