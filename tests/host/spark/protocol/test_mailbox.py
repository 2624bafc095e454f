"""The mailbox of a query, on a local disk and on a file system that other machines reach too."""

from __future__ import annotations

from errno import ENOTEMPTY
from pathlib import Path

import pytest

from penstock.host.spark.planner.epoch_planner import ENDS_FILE, decoded_ends, write_ends
from penstock.host.spark.planner.taps import read_tapped, read_taps, write_tapped, write_taps
from penstock.host.spark.protocol.mailbox import Mailbox, Signal, clear_mailboxes
from penstock.host.storage.files import Files
from penstock.record import TopicPartition


@pytest.fixture(params=["local", "shared"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where the mailbox of a query is that has not started yet."""
    place = str(tmp_path / "application" / "control")
    return place if request.param == "local" else f"fsspec+memory://{place}"


def test_a_signal_is_there_until_it_is_withdrawn(uri: str) -> None:
    driver, planner = Mailbox(uri), Mailbox(uri)
    driver.create()
    assert not any(map(planner.has, Signal))
    driver.send(Signal.PAUSE)
    driver.send(Signal.PAUSE)
    assert [each for each in Signal if planner.has(each)] == [Signal.PAUSE]
    driver.withdraw(Signal.PAUSE)
    driver.withdraw(Signal.PAUSE)
    assert not any(map(planner.has, Signal))


def test_the_newest_message_is_read(uri: str) -> None:
    driver, planner = Mailbox(uri), Mailbox(uri)
    driver.create()
    assert (decoded_ends(driver.read(ENDS_FILE)), read_taps(planner), read_tapped(driver)) == ({}, {}, {})
    for end in (3, 4):
        write_ends(planner, {TopicPartition("in", 0): end})
    write_taps(driver, {"node": 2})
    for record in (b"a", b"b", b"c"):
        write_tapped(planner, [{"node": [record], "other": [record]}])
    assert decoded_ends(driver.read(ENDS_FILE)) == {TopicPartition("in", 0): 4}
    assert read_taps(planner) == {"node": 2}
    assert read_tapped(driver) == {"node": [b"b", b"c"]}


def test_a_late_message_does_not_bring_back_a_local_directory(tmp_path: Path) -> None:
    gone = Mailbox(str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError):
        gone.send(Signal.STOPPED)
    gone.withdraw(Signal.PAUSE)
    assert not gone.has(Signal.STOPPED)
    assert not (tmp_path / "gone").exists()


def test_a_local_directory_is_private(tmp_path: Path) -> None:
    mailbox = Mailbox(str(tmp_path / "control"))
    mailbox.create()
    mailbox.send(Signal.STOP)
    assert (tmp_path / "control").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "control" / "stop").stat().st_mode & 0o777 == 0o600


def test_a_mailbox_in_which_an_earlier_query_still_writes_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = Files(str(tmp_path))
    mailbox = Mailbox(parent.below("1").uri)
    mailbox.create()

    def clear() -> None:
        raise OSError(ENOTEMPTY, "Directory not empty")

    with monkeypatch.context() as patched:
        patched.setattr(parent, "clear", clear)
        clear_mailboxes(parent)
    mailbox.send(Signal.STOPPED)
    clear_mailboxes(parent)
    assert not any(tmp_path.iterdir())
