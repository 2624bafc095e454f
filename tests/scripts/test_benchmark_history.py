"""The page of figures by version is made from the history."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from benchmarks.history import Rate, Run, runs
from scripts import benchmark_history

SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_and_its_pictures_are_up_to_date() -> None:
    for path, text in benchmark_history.files(runs()).items():
        assert path.read_text(encoding="utf-8") == text, "run python scripts/benchmark_history.py"


def run(commit: str, own: float, rival: float) -> Run:
    rates = (Rate("q0", "Penstock on threads", own, "events/s", 5.0), Rate("q0", "A & B", rival, "events/s"))
    return Run("nexmark", "0.3.0", commit, "2026-11-29", "2 cores", rates)


def test_a_picture_has_a_line_for_each_pair_and_a_point_for_each_run() -> None:
    picture = ElementTree.fromstring(benchmark_history.picture("nexmark", [run("a", 10.0, 5.0), run("b", 5.0, 10.0)]))
    (line,) = picture.iter(f"{SVG}polyline")
    first, second = (float(point.partition(",")[2]) for point in line.attrib["points"].split())
    assert first < second, "a higher ratio is higher in the picture"
    texts = [text.text for text in picture.iter(f"{SVG}text")]
    assert "Penstock on threads : A & B" in texts
    assert {"a", "b", "0.3.0", "1"} <= set(texts)


@pytest.mark.parametrize("ratio", [1.0, 1e-3, 1e3])
def test_a_picture_of_one_run_stays_in_its_frame(ratio: float) -> None:
    picture = ElementTree.fromstring(benchmark_history.picture("nexmark", [run("a", ratio, 1.0)]))
    for point in picture.iter(f"{SVG}circle"):
        assert 0 < float(point.attrib["cy"]) < 320


def test_a_table_has_the_rates_and_the_cpu_time() -> None:
    page = benchmark_history.page([run("a", 10_000.0, 5_000.0)])
    assert "| q0 | 10,000 (5.0) | 5,000 |" in page
    assert "0.3.0 (a), 2026-11-29, 2 cores; events/s:" in page
