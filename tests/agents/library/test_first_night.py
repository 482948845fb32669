"""Library agents for the first night: what they say of real files and repositories, and that they are silent otherwise."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agents import Fire, Quiet
from agents.agent import Agent
from agents.kernel import installation
from agents.kernel.installation import FailedRuns, Finished
from agents.library.backup_checker import Rule, backup_checker, fault_of
from agents.library.notes_keeper import notes_keeper
from agents.library.repository_tidier import draft_of, repository_tidier
from agents.models import Checklist
from agents.testing import AgentResult, ask_gate, run_agent
from runs.actions.checklists import ItemEdit, create_checklist
from tests.support.household import git, repository

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    settings.WAKEFUL_WORK_ROOTS = [str(tmp_path)]
    return tmp_path


def listed(agent: Agent, *texts: str) -> Checklist:
    return create_checklist(agent.name, items=[ItemEdit(text=text) for text in texts], by="ada")


def said(agent: Agent) -> list[str]:
    """What a wake notifies people of."""
    answer = ask_gate(agent)
    return [notice.text for notice in run_agent(agent, fired=answer).notifications] if isinstance(answer, Fire) else []


@pytest.mark.parametrize("agent", [backup_checker, repository_tidier], ids=lambda one: one.name)
def test_without_an_item_there_is_no_run(agent: Agent) -> None:
    assert isinstance(ask_gate(agent), Quiet)


# notes-keeper


class Day:
    """An installation with the runs of a day."""

    def __init__(self, *done: Finished, failed: tuple[FailedRuns, ...] = ()) -> None:
        self.done, self.failed = list(done), list(failed)

    def finished(self, since: datetime, until: datetime) -> list[Finished]:
        return self.done

    def failed_runs(self, within: timedelta, most: int = 20) -> list[FailedRuns]:
        return self.failed


def kept(monkeypatch: pytest.MonkeyPatch, day: Day) -> AgentResult | None:
    monkeypatch.setattr(installation._connection, "answers", day)
    answer = ask_gate(notes_keeper)
    return run_agent(notes_keeper, fired=answer) if isinstance(answer, Fire) else None


def test_the_day_is_noted_once(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    cause = FailedRuns(
        agent="clerk", cause="x", error="no\nanswer", count=2, first_at=now, last_at=now, runs=()
    )  # fmt: skip
    done = kept(monkeypatch, Day(Finished(agent="clerk", runs=12, failed=2), failed=(cause,)))

    assert done is not None and not done.notifications
    [note] = (root / "notes").iterdir()
    assert "- clerk: 12 runs, 2 failed" in note.read_text()
    assert "- failed: clerk, 2 ×: no answer" in note.read_text()


def test_a_day_without_runs_but_its_own_has_no_note(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept(monkeypatch, Day(Finished(agent="notes-keeper", runs=1, failed=0))) is None
    assert not (root / "notes").exists()


# backup-checker


def backup(root: Path, name: str, *, age: timedelta, size: int = 1_000) -> None:
    (root / name).write_bytes(b"x" * size)
    at = (datetime.now(UTC) - age).timestamp()
    os.utime(root / name, (at, at))


def test_good_backups_are_no_news(root: Path) -> None:
    backup(root, "1.dump", age=2 * DAY)
    backup(root, "2.dump", age=DAY)
    listed(backup_checker, f"{root}/*.dump newer than 26h, at least 1 kB")

    assert said(backup_checker) == []


def test_what_is_wrong_with_the_newest_is_said_and_its_end_too(root: Path) -> None:
    checklist = listed(backup_checker, f"{root}/*.dump newer than 26h, at least 1 kB")
    [missing] = said(backup_checker)
    backup(root, "1.dump", age=2 * DAY, size=3_000)
    [old] = said(backup_checker)
    backup(root, "2.dump", age=timedelta(), size=10)
    [small] = said(backup_checker)
    backup(root, "2.dump", age=timedelta(), size=1_400)
    [shrunk] = said(backup_checker)
    backup(root, "2.dump", age=timedelta(), size=2_900)

    assert "there is no" in missing and "is newer than 1 d; the newest is 1.dump of" in old.replace(" 2 h", "")
    assert "has 10 bytes, less than 1,000" in small and "1.dump before it has 3,000" in shrunk
    assert "all is well again" in said(backup_checker)[0]
    assert said(backup_checker) == []
    assert checklist.items.get().last_outcome == "ok"


@pytest.mark.parametrize(
    "text, why",
    [
        ("the shop's backups", "not a rule"),
        ("/etc/* newer than 1d", "is not below one of"),
        ("{root}/../*.x newer than 1d", "leaves its directory"),
        ("{root}/link/* newer than 1d", ""),
        ("{root}/* newer than soon", "not a duration"),
    ],
)
def test_a_rule_that_cannot_be_checked_fails_its_item_alone(root: Path, text: str, why: str) -> None:
    (root / "link").symlink_to("/etc")
    checklist = listed(backup_checker, text.format(root=root), f"{root}/no*.dump newer than 1d")

    assert len(said(backup_checker)) == 1
    wrong, right = checklist.items.all()
    assert (wrong.last_outcome, right.last_outcome) == ("failed", "news") and why in wrong.last_text


def test_the_words_are_the_same_while_the_fault_is_the_same(root: Path) -> None:
    backup(root, "1.dump", age=2 * DAY)
    rule, now = Rule.of(f"{root}/*.dump newer than 1d"), datetime.now(UTC)

    assert fault_of(rule, now) == fault_of(rule, now + DAY) != ""


def test_a_backup_that_is_dated_ahead_hides_no_missing_one(root: Path) -> None:
    backup(root, "old.dump", age=30 * DAY)
    backup(root, "odd.dump", age=-400 * DAY)
    rule, now = Rule.of(f"{root}/*.dump newer than 1d"), datetime.now(UTC)

    assert "odd.dump" in (fault := fault_of(rule, now)) and "ahead of now" in fault
    backup(root, "odd.dump", age=-timedelta(minutes=5))
    assert fault_of(rule, now) == ""


# repository-tidier


def test_branches_that_could_go_are_drafted_once(root: Path) -> None:
    shop = repository(root)
    checklist = listed(repository_tidier, str(shop), str(root / "none"))

    [draft] = said(repository_tidier)

    assert f"git -C {shop} branch -d -- merged" in draft and f"git -C {shop} branch -D -- forgotten" in draft
    assert "at-work" not in draft and "-- main" not in draft
    assert [item.last_outcome for item in checklist.items.all()] == ["news", "failed"]
    assert said(repository_tidier) == []
    git(shop, "branch", "-D", "merged", "forgotten")
    assert said(repository_tidier) == []


@pytest.mark.parametrize("end", ["\u2028", "\x0b"])
def test_a_subject_names_no_branch_that_could_go(root: Path, end: str) -> None:
    shop = root / "shop"
    shop.mkdir()
    git(shop, "init", "-q", "-b", "main")
    git(shop, "commit", "-q", "--allow-empty", "-m", "first")
    git(shop, "checkout", "-q", "-b", "forged")
    git(shop, "commit", "-q", "--allow-empty", "-m", f"x{end}release 2020-01-01T00:00:00+00:00 abc y")
    listed(repository_tidier, str(shop))

    assert said(repository_tidier) == []


def test_a_list_of_branches_that_was_cut_is_read_as_far_as_it_goes() -> None:
    lines = ["old 2026-01-01T00:00:00+00:00 abc x", "older 2025-01-0", "… cut after 60,000 bytes"]

    draft = draft_of("/data/agents/it's", lines, "main", datetime(2026, 11, 26, tzinfo=UTC))

    assert draft.splitlines()[-1] == """git -C '/data/agents/it'"'"'s' branch -D -- old"""
