"""The hook that checks the messages of commits."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scripts.commit_message import LONGEST_SUBJECT, faults, main

ROOT = Path(__file__).parents[2]
BODY = "\n\nClients ask for it.\n"


@pytest.mark.parametrize(
    "message",
    [
        f"broker: answer DescribeLogDirs{BODY}",
        f"host/threads: keep tasks of an instance that restarts{BODY}",
        f"penstock_broker: end a log before damage{BODY}",
        "\nlog: force no segments that have been deleted\n# On branch main\n\nThe log failed.\n# diff",
        f"docs: name types{BODY}# ------------------------ >8 ------------------------\ndiff --git a b\n+ more",
        "Merge branch 'main' into other",
        "fixup! broker: answer DescribeLogDirs",
    ],
)
def test_a_message_that_keeps_the_rules_passes(message: str) -> None:
    assert not list(faults(message))


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        ("", "The subject is"),
        (f"answer DescribeLogDirs{BODY}", "The subject is"),
        (f"Broker: answer DescribeLogDirs{BODY}", "The subject is"),
        (f"broker: Answer DescribeLogDirs{BODY}", "The subject is"),
        (f"broker: answer{BODY}", "The subject is"),
        (f"broker: answer requests.{BODY}", "no full stop"),
        (f"broker: {'answer' + ' x' * LONGEST_SUBJECT}{BODY}", "72 is the most"),
        ("broker: answer requests\nClients ask for it.", "second line is empty"),
        ("broker: answer requests\n", "gives the reason"),
        ("broker: answer requests\n\n# Please enter the commit message\n", "gives the reason"),
    ],
)
def test_a_message_that_breaks_a_rule_is_refused(message: str, fault: str) -> None:
    assert any(fault in found for found in faults(message))


def test_the_longest_subject_passes() -> None:
    subject = "broker: answer requests".ljust(LONGEST_SUBJECT, "x")
    assert not list(faults(subject + BODY))


def test_the_command_prints_the_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = tmp_path / "COMMIT_EDITMSG"
    message.write_text("Answer.\n")
    assert main(str(message)) == 1
    assert "The subject is" in capsys.readouterr().err
    message.write_text(f"broker: answer requests{BODY}")
    assert main(str(message)) == 0
    assert not capsys.readouterr().err


def test_pre_commit_runs_the_script_for_messages_alone() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = {hook["id"]: hook for repo in config["repos"] for hook in repo["hooks"]}
    assert "commit-msg" in config["default_install_hook_types"]
    assert config["default_stages"] == ["pre-commit"]
    assert hooks["commit-message"]["stages"] == ["commit-msg"]
    assert (ROOT / hooks["commit-message"]["entry"].split()[-1]).is_file()
