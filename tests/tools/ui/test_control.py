"""What others may have an application do: with the token, and not without."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.errors import StreamsError
from penstock.host.api import State
from penstock.record import ConsumerRecord
from penstock.task.taps import TappedRecord
from penstock.tools.transfers.redrive import DeadLetter, KeptLetter, Redrive
from penstock.tools.ui.answers import Answers
from penstock.tools.ui.control import UNREAD_MS, Control
from penstock.tools.ui.routes import application
from penstock_broker.process import BrokerProcess
from tests.support.answers import check_answer
from tests.support.commands import Run
from tests.support.waiting import until
from tests.tools.transfers.test_redrive import Case
from tests.tools.transfers.topics import Sent, Topics
from tests.tools.ui.conftest import Shown
from tests.tools.ui.test_pages import HOSTILE, Read, page


class Controlled:
    """An application that takes actions."""

    def __init__(self, shown: Shown, answers: Answers) -> None:
        self.shown = shown
        self.control = Control(shown.streams, shown.config, shown.clock.milliseconds)
        self.client = shown.client = TestClient(application(answers, self.control), base_url="http://localhost")

    def post(self, action: str, token: str | None = None, **headers: str) -> Any:
        """Ask for an action as a program does."""
        bearer = {"Authorization": f"Bearer {self.control.token if token is None else token}"}
        answer = self.client.post(f"/api/v1/control/{action}", headers={**bearer, **headers})
        check_answer(f"/api/v1/control/{action}", answer.json(), answer.status_code)
        return answer

    def submit(self, **fields: str) -> Any:
        """Submit the form of the page as a browser does, with these fields in place of the right ones."""
        return self.client.post("/control", data={"token": self.control.token, "confirmed": "yes", **fields})


@pytest.fixture
def case(embedded_broker: BrokerProcess, penstock_here: Run, unique_name: Callable[[str], str]) -> Iterator[Case]:
    with Topics(embedded_broker.bootstrap_servers) as topics:
        yield Case(topics, penstock_here, unique_name("in"), unique_name("dlq"))


@pytest.fixture
def controlled(shown: Shown) -> Controlled:
    return Controlled(shown, Answers(shown.observer, shown.config))


def test_it_pauses_resumes_and_stops(controlled: Controlled, caplog: pytest.LogCaptureFixture) -> None:
    calls, streams = controlled.shown.host.calls, controlled.shown.streams
    answer = controlled.post("pause")
    assert (answer.status_code, answer.json()) == (202, {"state": "RUNNING", "paused": True})
    assert controlled.post("resume").json() == {"state": "RUNNING", "paused": False}
    assert calls[-2:] == ["pause", "resume"]
    assert controlled.post("stop").status_code == 202
    assert until(lambda: streams.state() is State.NOT_RUNNING)
    assert caplog.messages == [f"app: {action} requested by testclient." for action in ("pause", "resume", "stop")]
    assert controlled.control.token not in caplog.text
    refusal = controlled.post("pause")
    assert (refusal.status_code, refusal.json()["error"]) == (409, "Cannot pause app: its state is NOT_RUNNING.")


@pytest.mark.parametrize("token", ["", "wrong", "ü", None])
def test_it_does_nothing_without_the_token(
    controlled: Controlled, caplog: pytest.LogCaptureFixture, token: str | None
) -> None:
    header = {} if token is None else {"Authorization": f"Bearer {token}".encode()}
    answer = controlled.client.post("/api/v1/control/stop", headers=header)
    assert answer.status_code == 403
    assert answer.json()["error"].startswith("The token is wrong")
    assert controlled.submit(action="stop", token=token or "").status_code == 403
    assert controlled.shown.streams.state() is State.RUNNING
    assert caplog.messages == ["app: 'stop' requested by testclient with a wrong token."]


def test_it_is_not_asked_by_a_link_or_an_address(controlled: Controlled) -> None:
    for path in (f"/api/v1/control/pause?token={controlled.control.token}", "/api/v1/control/pause"):
        assert controlled.client.get(path).status_code == 405
        assert controlled.client.post(path).status_code == 403
    controlled.client.get(f"/control?action=pause&confirmed=yes&token={controlled.control.token}")
    assert not controlled.shown.streams.is_paused()


@pytest.mark.parametrize(
    "headers",
    [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.example"}],
)
def test_pages_of_other_sites_cannot_ask(controlled: Controlled, headers: dict[str, str]) -> None:
    answer = controlled.post("pause", **headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "The request came from a page of another site.")
    assert not controlled.shown.streams.is_paused()


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "same-origin", "Origin": "null"}, {"Origin": "http://localhost"}, {"Origin": "null"}]
)
def test_its_own_page_can_ask(controlled: Controlled, headers: dict[str, str]) -> None:
    assert controlled.post("pause", **headers).status_code == 202


def test_an_unknown_action_is_refused(controlled: Controlled) -> None:
    answer = controlled.post("explode")
    assert answer.status_code == 404
    assert answer.json()["error"] == "There is no action 'explode': expected one of pause, resume, stop, tap, untap."


def test_the_page_asks_once_and_does_it(controlled: Controlled) -> None:
    found = page(controlled.shown, "/control")
    assert {each.get("value") for each in found.with_tag("input")} == {"pause", "resume", "stop", "yes", None}
    assert all("required" in each for each in found.with_tag("input"))
    assert controlled.control.token not in controlled.client.get("/control").text
    refused = controlled.submit(action="pause", confirmed="no")
    assert refused.status_code == 400
    assert "Nothing was done" in refused.text
    assert not controlled.shown.streams.is_paused()
    done = controlled.submit(action="pause")
    assert done.status_code == 200
    assert "Requested: pause." in Read(done.text).text
    assert "PAUSED" in Read(done.text).text
    assert controlled.shown.streams.is_paused()


def test_a_node_is_tapped_and_untapped_from_its_page(controlled: Controlled, caplog: pytest.LogCaptureFixture) -> None:
    host, node, address = controlled.shown.host, "KSTREAM-AGGREGATE-0000000003", "/topology?topology=&node="
    host.taps[node] = [TappedRecord("k", "<b>v</b>", 5, (), "1_0", "lines", 0, 7, 5)]
    found = page(controlled.shown, address + node)
    form = {str(each["name"]): str(each["value"]) for each in found.with_tag("input") if each["type"] == "hidden"}
    assert form == {"action": "tap", "node": node, "topology": ""}
    assert "Last records" not in found.text
    assert "tick" in controlled.submit(**{**form, "confirmed": "no"}).text
    assert controlled.shown.streams.tapped(node) is None
    shown = Read(controlled.submit(**form).text)
    assert f"Requested: tap. Node: {node}." in shown.text
    assert "<b>v</b>" in shown.text
    closing = {str(each["name"]): str(each["value"]) for each in shown.with_tag("input") if each["type"] == "hidden"}
    assert closing["action"] == "untap"
    assert controlled.submit(**closing).status_code == 200
    assert (controlled.shown.streams.tapped(node), host.calls[-1]) == (None, f"untap {node}")
    assert f"app: tap of {node} requested by testclient." in caplog.messages
    assert f"app: untap of {node} requested by testclient." in caplog.messages


def test_a_tap_of_a_page_ends_when_nobody_reads_it(controlled: Controlled) -> None:
    host, streams, clock = controlled.shown.host, controlled.shown.streams, controlled.shown.clock
    node, other = "KSTREAM-SOURCE-0000000000", "KSTREAM-AGGREGATE-0000000003"
    host.taps |= {node: [], other: []}
    own = streams.tap(other)
    controlled.post(f"tap?node={node}")
    for _ in range(3):
        clock.advance(UNREAD_MS - 1)
        controlled.shown.json("/api/v1/topology")
        controlled.control.close_unread_taps()
    clock.advance(UNREAD_MS)
    controlled.control.close_unread_taps()
    assert host.calls[-1] == f"untap {node}"
    assert streams.tapped(node) is None
    assert own.is_open
    controlled.post(f"tap?node={node}")
    clock.advance(UNREAD_MS - 1)
    controlled.control.close_unread_taps()
    assert streams.tapped(node) is not None


def test_a_program_taps_a_node_and_the_tap_of_the_program_itself_stays(controlled: Controlled) -> None:
    host, node = controlled.shown.host, "KSTREAM-SOURCE-0000000000"
    host.taps[node] = []
    own = controlled.shown.streams.tap(node)
    answer = controlled.post(f"tap?node={node}")
    assert (answer.status_code, answer.json()["node"]) == (202, node)
    assert own.is_open
    assert controlled.post(f"untap?node={node}").status_code == 202
    assert not own.is_open


@pytest.mark.parametrize("query", ["", "?node=none", "?node=<b>", "?topology=none&node=KSTREAM-SOURCE-0000000000"])
def test_a_tap_of_a_node_that_there_is_not_is_refused(controlled: Controlled, query: str) -> None:
    answer = controlled.post(f"tap{query}")
    assert answer.status_code == 404
    assert answer.json()["error"].startswith("Cannot tap: no sub-topology has a node ")


def test_a_page_has_no_form_for_a_node_that_there_is_not_and_none_without_control(
    controlled: Controlled, show: Callable[..., Shown]
) -> None:
    for query in ("node=none", "topology=none&node=KSTREAM-SOURCE-0000000000"):
        assert page(controlled.shown, f"/topology?{query}").with_tag("form") == []
    assert page(show(), "/topology?node=KSTREAM-SOURCE-0000000000").with_tag("form") == []


def test_hostile_forms_are_refused_and_shown_as_text(controlled: Controlled) -> None:
    answer = controlled.submit(action="<script>")
    assert answer.status_code == 404
    assert "<script>" not in answer.text
    assert controlled.submit(action="pause", more="x" * 5_000).status_code == 413
    assert "evil" not in page(controlled.shown, "/control?problem=evil&done=evil").text
    assert controlled.client.post("/control", content=b"\xff&=&&").status_code == 400


def test_without_control_there_is_no_page_and_no_action(shown: Shown) -> None:
    assert shown.client.get("/control").status_code == 404
    assert shown.client.post("/api/v1/control/pause").status_code == 404
    assert "/control" not in [each["href"] for each in page(shown, "/").with_tag("a")]


def test_there_are_no_savepoints_and_no_redrives_where_nothing_is_set_for_them(controlled: Controlled) -> None:
    for action in ("savepoint", "redrive"):
        assert controlled.post(action).status_code == 404
    assert controlled.control.actions == ("pause", "resume", "stop", "tap", "untap")
    assert controlled.shown.json("/api/v1/dead-letters", 400)["error"] == (
        "There are no dead letters: errors.dead.letter.queue.topic.name is not set."
    )
    assert "Dead letters" not in page(controlled.shown, "/errors").text


def test_dead_letters_are_shown_with_the_command_and_go_back_once(
    case: Case, embedded_broker: BrokerProcess, show: Callable[..., Shown]
) -> None:
    queue = {"errors.dead.letter.queue.topic.name": case.queue}
    shown = show(**{"bootstrap.servers": embedded_broker.bootstrap_servers, **queue})
    controlled = Controlled(shown, Answers(shown.observer, shown.config))
    case.fail(b"a", ValueError("<b>first</b>"))
    case.fail(b"b", ValueError("second"))
    assert f"penstock redrive {case.queue} " in page(shown, "/errors").text
    assert f"{case.source} builtins.ValueError 2 <b>first</b>" in page(shown, "/errors?dead_letters=show").text
    answer = shown.json("/api/v1/dead-letters")
    assert (answer["records"], answer["letters"][0]["message"]) == (2, "<b>first</b>")
    assert case.values() == []
    answer = controlled.post("redrive")
    assert (answer.status_code, answer.json()["redriven"]) == (202, 2)
    assert case.values() == [b"a", b"b"]
    assert "Requested: redrive. Dead letter topic: " in Read(controlled.submit(action="redrive").text).text
    assert case.values() == [b"a", b"b"]
    assert "No dead letter is left" in page(shown, "/errors?dead_letters=show").text


def test_each_dead_letter_has_the_command_that_redrives_it(
    case: Case, embedded_broker: BrokerProcess, show: Callable[..., Shown]
) -> None:
    servers = embedded_broker.bootstrap_servers
    shown = show(**{"bootstrap.servers": servers, "errors.dead.letter.queue.topic.name": case.queue})
    case.fail(b"a", ValueError("first"), offset=17, timestamp=1)
    case.fail(b"<i>\x00\xff" + b"x" * 5_000, ValueError(HOSTILE), offset=18, timestamp=2, headers=((HOSTILE, None),))
    case.fail(None, ValueError("of a punctuator"), -1, None, topic=None, offset=-1, timestamp=3)
    case.topics.write(case.queue, [Sent(0, b"k", b"foreign", 4)])
    foreign, tick, long, first = shown.json("/api/v1/dead-letters")["last"]
    assert (foreign["value"], foreign["exception"], foreign["command"]) == ("foreign", None, None)
    assert (tick["source"], tick["message"], tick["command"]) == (None, "of a punctuator", None)
    assert long["source"] == {"topic": case.source, "partition": 0, "offset": 18}
    assert long["value"].startswith("<i>\ufffd\ufffdxxx")
    assert long["value"].endswith("... (5,005 bytes)")
    assert long["headers"][0][0].startswith("<script>")
    assert first["command"] == (
        f"penstock redrive {case.queue} --source-topic={case.source} --partition=0 --offset=17 --skip-invalid "
        f"--config bootstrap.servers={servers}"
    )
    ended = case.run(*shlex.split(first["command"])[1:])
    assert ended.code == 0, ended.err
    assert case.values() == [b"a"]
    last = shown.json("/api/v1/dead-letters")["last"]
    assert [each["redriven"] for each in last] == [False, False, False, True]
    found = page(shown, "/errors?dead_letters=show")
    assert "Records that are not dead letters, which are skipped: 1." in found.text
    assert "<script>alert('1')</script>" in found.text
    assert first["command"] in found.text
    assert len(found.with_tag("details")) == 4
    done = Controlled(shown, Answers(shown.observer, shown.config)).post("redrive")
    assert (done.json()["redriven"], done.json()["invalid"]) == (1, 1)


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "has_command"),
    [
        ("a b", 0, 1, False),
        ("a\nb", 0, 1, False),
        ("t\n", 0, 1, False),
        ("", 0, 1, False),
        ("t", -1, 1, False),
        ("t", 0, -1, False),
        ("t", 0, 1, True),
    ],
)
def test_headers_that_name_no_place_of_kafka_make_no_command(
    show: Callable[..., Shown],
    monkeypatch: pytest.MonkeyPatch,
    topic: str,
    partition: int,
    offset: int,
    has_command: bool,
) -> None:
    shown = show(**{"errors.dead.letter.queue.topic.name": "dlq"})
    letter = DeadLetter("e", "m", topic, partition, b"k", b"v", 1, (), offset)
    kept = KeptLetter(ConsumerRecord("dlq", 0, 0, 1, b"k", b"v", ()), letter, False)
    monkeypatch.setattr("penstock.tools.ui.answers.inspect_letters", lambda *arguments: (Redrive("dlq"), [kept]))
    (answer,) = Answers(shown.observer, shown.config).dead_letters()["last"]
    assert (answer["command"] is not None) == has_command


def test_a_queue_whose_name_begins_with_a_dash_is_no_option(show: Callable[..., Shown]) -> None:
    shown = show(**{"errors.dead.letter.queue.topic.name": "-x"})
    assert Answers(shown.observer, shown.config).redrive_command() == (
        "penstock redrive --config bootstrap.servers=localhost:1 -- -x"
    )


def test_dead_letters_are_read_for_one_request_at_a_time(
    show: Callable[..., Shown], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = show(**{"errors.dead.letter.queue.topic.name": "dlq"})
    answers = Answers(shown.observer, shown.config)
    read: list[str] = []

    def inspect(*arguments: Any) -> tuple[Redrive, list[KeptLetter]]:
        with pytest.raises(StreamsError, match="are being read for another request: ask again"):
            answers.dead_letters()
        read.append("once")
        return Redrive("dlq"), []

    monkeypatch.setattr("penstock.tools.ui.answers.inspect_letters", inspect)
    for count in (1, 2):
        assert answers.dead_letters()["records"] == 0
        assert len(read) == count


def test_a_savepoint_that_fails_is_reported(show: Callable[..., Shown], tmp_path: Path) -> None:
    directories = {"state.dir": str(tmp_path / "state"), "penstock.ui.savepoint.dir": str(tmp_path / "savepoints")}
    elsewhere = show(**directories)
    assert "savepoint" not in Control(elsewhere.streams, elsewhere.config).actions
    shown = show(**directories, **{"penstock.host": "spark"})
    controlled = Controlled(shown, Answers(shown.observer, shown.config))
    assert "savepoint" in {each.get("value") for each in page(shown, "/control").with_tag("input")}
    answer = controlled.post("savepoint")
    assert answer.status_code == 503
    assert answer.json()["error"].startswith("savepoint of app failed: There is no checkpoint at ")


@pytest.mark.parametrize("error", [OSError("no space"), RuntimeError("no space"), ValueError("no space")])
def test_an_action_that_fails_is_answered_and_logged(
    controlled: Controlled, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(controlled.shown.host, "pause", fail)
    answer = controlled.post("pause")
    assert (answer.status_code, answer.json()["error"]) == (503, "pause of app failed: no space")
    assert "app: pause failed: no space" in caplog.messages


def test_refusals_do_not_fill_the_log(controlled: Controlled, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            controlled.post("stop", token="wrong")
    assert len(caplog.messages) == 1


def test_each_application_has_a_token_of_its_own(show: Callable[..., Shown]) -> None:
    tokens = {Control(each.streams, each.config).token for each in (show() for _ in range(3))}
    assert len(tokens) == 3
    assert all(len(token) >= 43 for token in tokens)
