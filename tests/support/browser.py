"""A browser without a screen, for tests of pages: Chromium, by its DevTools protocol through pipes.

Debian's package `chromium` is enough. Without a Chromium, tests are skipped, unless PENSTOCK_REQUIRE_CHROMIUM=1.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from tests.support.waiting import WAIT_SECONDS, until

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome")
_OPTIONS: Final = (
    "--headless",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-sandbox",  # which root cannot have
    "--remote-debugging-pipe",
)


CHROMIUM: Final = next((path for name in _NAMES if (path := shutil.which(name)) is not None), None)
"""The path of a Chromium, None if there is none."""
_REASON: Final = "There is no Chromium: apt-get install chromium"

WITH_CHROMIUM: Final = pytest.mark.skipif(
    CHROMIUM is None and os.environ.get("PENSTOCK_REQUIRE_CHROMIUM") != "1", reason=_REASON
)
"""Mark of a test in a browser."""


_LEAVING: Final = (
    "Inspected target navigated or closed",
    "Execution context was destroyed.",
    "Could not find node with given id",
)
"""What the browser answers about a page while it goes to another one."""
_KEYS: Final = {"Tab": 9, "Enter": 13}
"""The numbers of keys in Windows, by which pages tell them."""
_MOST_TABS: Final = 500


class LeavingError(Exception):
    """A script did not run, because the page is being left."""


class Browser:
    """One page of a browser; a context manager that ends it."""

    def __init__(self, directory: Path) -> None:
        """Start it. directory: for its files."""
        assert CHROMIUM is not None, _REASON
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # the program reads from 3 and writes to 4
        command = ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", CHROMIUM, *_OPTIONS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={directory}"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self.problems: list[str] = []
        """Errors of scripts, and what the browser refused."""
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._number = 0
        self._session: dict[str, str] = {}
        threading.Thread(target=self._listen, daemon=True).start()
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._session = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._write)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Return what a method of the protocol answers."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._write, orjson.dumps(message) + b"\0")
        answer = self._answers.get(timeout=WAIT_SECONDS)
        assert answer["id"] == self._number
        if answer.get("error", {}).get("message") in _LEAVING:
            raise LeavingError(method)
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    def open(self, address: str) -> None:
        """Go to an address, and wait until its page is there."""
        self.evaluate("document.left = true")
        self.call("Page.navigate", url=address)
        self.wait_for("!document.left && document.readyState === 'complete'")

    def go(self, address: str) -> None:
        """Go to an address, and wait for its page where scripts are switched off."""
        loader = self.call("Page.navigate", url=address)["loaderId"]
        assert until(lambda: self.call("Page.getFrameTree")["frameTree"]["frame"]["loaderId"] == loader)
        assert until(self._is_whole)

    def _is_whole(self) -> bool:
        try:
            return self.html().endswith("</body></html>")
        except LeavingError:
            return False

    def html(self) -> str:
        """Return the page as HTML, also where scripts are switched off."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        return str(self.call("DOM.getOuterHTML", nodeId=root)["outerHTML"])

    def evaluate(self, script: str) -> Any:
        """Return what a script gives in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, f"{script}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def text(self, selector: str) -> str:
        """Return the text of the first element that a selector of CSS finds, empty for none."""
        return str(self.evaluate(f"document.querySelector({orjson.dumps(selector).decode()})?.textContent ?? ''"))

    def click(self, selector: str) -> None:
        """Click an element that leads to a page, and wait until that is there."""
        self.evaluate("document.left = true")
        click = "new MouseEvent('click', {bubbles: true, cancelable: true})"  # elements of SVG have no click()
        self.evaluate(f"document.querySelector({orjson.dumps(selector).decode()}).dispatchEvent({click})")
        self.wait_for("!document.left && document.readyState === 'complete'")

    def wait_for(self, script: str) -> None:
        """Wait until a script gives what is true."""
        assert until(lambda: self._holds(script)), f"{script}; the page: {self.evaluate('document.body.innerText')}"

    def _holds(self, script: str) -> bool:
        try:
            return bool(self.evaluate(script))
        except LeavingError:
            return False

    def press(self, key: str, text: str = "") -> None:
        """Press and release a key. key: its name, such as Tab. text: what it writes."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **code)
        self.call("Input.dispatchKeyEvent", type="keyUp", **code)

    def tab_to(self, selector: str) -> None:
        """Press Tab until an element that a selector of CSS finds has the focus."""
        found = f"document.activeElement.matches({orjson.dumps(selector).decode()})"
        for _ in range(_MOST_TABS):
            self.press("Tab")
            if self.evaluate(found):
                return
        raise AssertionError(f"Tab does not reach {selector}.")

    def follow(self) -> None:
        """Press Enter on a link, and wait until its page is there."""
        self.evaluate("document.left = true")
        self.press("Enter", "\r")
        self.wait_for("!document.left && document.readyState === 'complete'")

    def _listen(self) -> None:
        left = b""
        with os.fdopen(self._read, "rb", buffering=0) as pipe:
            while part := pipe.read(65_536):
                *messages, left = (left + part).split(b"\0")
                for message in map(orjson.loads, messages):
                    if "id" in message:
                        self._answers.put(message)
                    elif message["method"] in ("Runtime.exceptionThrown", "Log.entryAdded"):
                        self.problems.append(str(message["params"]))
