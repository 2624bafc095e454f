"""Directories and files for one user alone."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from penstock.config import StreamsConfig
from penstock.errors import ConfigError, ProcessorStateError
from penstock.host.storage.directories import application_directory, own_checkpoint_directory, warn_of_temporary_state
from penstock.host.storage.files import Files
from penstock.private_files import default_directory, open_private, private_directory, temporary_directory


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the files created so far belong to another user."""
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)


def test_what_is_made_is_for_this_user_alone(tmp_path: Path) -> None:
    made = private_directory(tmp_path / "a" / "b")
    assert (mode(made), mode(made.parent)) == (0o700, 0o700)
    with open_private(made / "file", "xb") as file:
        file.write(b"secret")
    assert mode(made / "file") == 0o600


def test_a_directory_of_this_user_is_closed_to_others(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    assert mode(private_directory(tmp_path / "open")) == 0o700


def test_links_are_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_bytes(b"precious")
    (tmp_path / "link").symlink_to(victim)
    (tmp_path / "file").symlink_to(victim / "file")
    (tmp_path / "dangling").symlink_to(victim / "new")
    with pytest.raises(ProcessorStateError, match=r"not a link.* state\.dir and penstock\.checkpoint\.dir"):
        private_directory(tmp_path / "link")
    for name in ("file", "dangling"):
        with pytest.raises(ProcessorStateError, match="is a link"):
            open_private(tmp_path / name, "wb")
    assert (victim / "file").read_bytes() == b"precious"
    assert not (victim / "new").exists()


def test_what_is_another_users_is_refused(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(0o777)
    (tmp_path / "file").write_bytes(b"")
    request.getfixturevalue("another_user")
    with pytest.raises(ProcessorStateError, match="belongs to another user"):
        private_directory(tmp_path / "theirs")
    with pytest.raises(ProcessorStateError, match="belongs to another user"):
        open_private(tmp_path / "file", "ab")


def test_who_came_first_to_the_default_directory_gets_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    directory = tmp_path / f"penstock-{os.getuid()}"
    config = StreamsConfig({"application.id": "app", "state.dir": str(directory)}, environment={})
    victim = tmp_path / "victim"
    victim.mkdir()
    directory.symlink_to(victim)
    with pytest.raises(ProcessorStateError):
        application_directory(config)
    assert not any(victim.iterdir())
    directory.unlink()
    assert mode(application_directory(config).parent) == 0o700


@pytest.mark.parametrize("application_id", ["../elsewhere", "a/b", "..", "."])
def test_an_application_id_is_one_directory_in_the_state_directory(tmp_path: Path, application_id: str) -> None:
    given = {"application.id": application_id, "state.dir": str(tmp_path / "state")}
    with pytest.raises(ConfigError, match=r"for configuration application\.id: it (has|is) .*which no topic may have"):
        application_directory(StreamsConfig(given, environment={}))
    assert not any(tmp_path.iterdir())


def test_a_checkpoint_that_everybody_may_write_to_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    own_checkpoint_directory(shared)
    assert "thus run code as this user" in caplog.text
    own_checkpoint_directory(tmp_path / "new")
    assert mode(tmp_path / "new") == 0o700


def test_code_is_loaded_of_files_that_nobody_else_can_have_written(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    files, file = Files(str(tmp_path)), tmp_path / "plan"
    assert files.read_code("plan") is None
    files.write("plan", b"code")
    assert files.read_code("plan") == b"code"
    file.chmod(0o666)
    with pytest.raises(ProcessorStateError, match=f"{file} .*mode 666.* another user may have written it"):
        files.read_code("plan")
    file.chmod(0o644)
    assert files.read_code("plan") == b"code"
    if os.getuid() == 0:
        os.chown(file, 4321, -1)  # whatever the user of this process is, a file of root may be used
    request.getfixturevalue("another_user")
    with pytest.raises(ProcessorStateError, match="another user may have written it"):
        files.read_code("plan")


def test_state_is_kept_where_the_platform_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert default_directory() == tmp_path / "state" / "penstock"


def test_state_is_kept_among_temporary_files_where_a_user_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert default_directory() == temporary_directory()


@pytest.mark.parametrize(("given", "warned"), [({}, True), ({"penstock.checkpoint.dir": "/data"}, False)])
def test_a_checkpoint_among_temporary_files_is_reported(
    given: dict[str, str], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = {"application.id": "app", "state.dir": str(temporary_directory()), **given}
    warn_of_temporary_state(StreamsConfig(config))
    assert ("The checkpoint of app is among the temporary files" in caplog.text) is warned
