"""What others may have an application do: with the token, and not without."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from penstock.broker.process import BrokerProcess
from penstock.host.api import State
from penstock.ui.answers import Answers
from penstock.ui.control import Control
from penstock.ui.routes import application
from tests.support.answers import check_answer
from tests.support.commands import Run
from tests.support.waiting import until
from tests.transfers.test_redrive import Case
from tests.transfers.topics import Topics
from tests.ui.conftest import Shown
from tests.ui.test_pages import Read, page


class Controlled:
    """An application that takes actions."""

    def __init__(self, shown: Shown, answers: Answers) -> None:
        self.shown = shown
        self.control = Control(shown.streams, shown.config)
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
    assert answer.json()["error"] == "There is no action 'explode': expected one of pause, resume, stop."


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
    assert controlled.control.actions == ("pause", "resume", "stop")
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


def test_refusals_do_not_fill_the_log(controlled: Controlled, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            controlled.post("stop", token="wrong")
    assert len(caplog.messages) == 1


def test_each_application_has_a_token_of_its_own(show: Callable[..., Shown]) -> None:
    tokens = {Control(each.streams, each.config).token for each in (show() for _ in range(3))}
    assert len(tokens) == 3
    assert all(len(token) >= 43 for token in tokens)
