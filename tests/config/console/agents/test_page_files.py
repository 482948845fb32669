"""The pages on which a checklist, or the instructions of a prompt agent, is edited as text and kept in a file."""

import re
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from agents.models import Checklist
from agents.prompt_agents.definition import Definition
from runs.actions.checklists import ItemEdit, create_checklist, edit_checklist
from tests.support.console import page_of
from triggers.prompt_agents.edit import create_prompt_agent, newest_of

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    settings.WAKEFUL_WORK_ROOTS = [str(tmp_path)]
    return tmp_path


@pytest.fixture
def checklist() -> Checklist:
    return create_checklist("ops", items=[ItemEdit(text="failed runs"), ItemEdit(text="backups")], by="code")


def path_of(row: Any, button: str, noun: str = "agents_checklist") -> str:
    return page_of(noun, row).replace("/change/", f"/{button}/")


def texts(checklist: Checklist) -> list[str]:
    return [item.text for item in checklist.items.all()]


def seen(shown: str) -> str:
    found = re.search(r'name="seen" value="([^"]+)"', shown)
    assert found
    return found[1]


def test_a_checklist_is_edited_as_one_text(admin: Client, checklist: Checklist) -> None:
    shown = admin.get(path_of(checklist, "text")).content.decode()
    assert "- failed runs\n- backups" in shown

    wrong = admin.post(path_of(checklist, "text"), {"number": "1", "text": "- disk\nSee below"}).content.decode()
    assert "line 2" in wrong and "See below" in wrong
    admin.post(path_of(checklist, "text"), {"number": "1", "text": "- disk (every 1h)\r\n- backups\r\n"})
    late = admin.post(path_of(checklist, "text"), {"number": "1", "text": "- mine\n"}, follow=True).content.decode()

    assert "was edited meanwhile" in late
    assert texts(checklist) == ["disk", "backups"]


def test_a_person_links_compares_and_takes_a_file(admin: Client, checklist: Checklist, root: Path) -> None:
    file = path_of(checklist, "file")
    (root / "HEARTBEAT.md").write_text("- by hand\n")
    refused = admin.post(file, {"path": "/etc/x.md"}).content.decode()
    admin.post(file, {"path": "HEARTBEAT.md"})
    shown = admin.get(file).content.decode()

    assert "is not below one of" in refused
    assert "+- by hand" in shown and "-- backups" in shown
    assert texts(checklist) == ["failed runs", "backups"]
    edit_checklist(checklist.pk, [ItemEdit(text="of another person")], by="bob")
    late = admin.post(file, {"act": "take", "seen": seen(shown)}, follow=True).content.decode()
    assert "after what you have seen" in late and texts(checklist) == ["of another person"]

    admin.post(file, {"act": "take", "seen": seen(admin.get(file).content.decode())})
    assert texts(checklist) == ["by hand"]
    assert "Both are the same" in admin.get(file).content.decode()
    admin.post(file, {"act": "unlink", "seen": "x"})
    assert 'name="path"' in admin.get(file).content.decode()


def test_a_file_that_cannot_be_read_here_is_named_with_the_reason(
    admin: Client, checklist: Checklist, root: Path
) -> None:
    file = path_of(checklist, "file")
    admin.post(file, {"path": "HEARTBEAT.md"})
    (root / "HEARTBEAT.md").write_bytes(b"\xff")

    assert "no text in UTF-8" in admin.get(file).content.decode()
    answer = admin.post(file, {"act": "write", "seen": "unread"}).content.decode()
    assert "no text in UTF-8" in answer and (root / "HEARTBEAT.md").read_bytes() == b"\xff"


def test_instructions_are_written_to_a_file(admin: Client, root: Path) -> None:
    agent = create_prompt_agent("clerk", Definition(instructions="Look at the mail."), by="ada")
    file = path_of(agent, "file", "agents_promptagent")
    admin.post(file, {"path": "ORDERS.md"})
    admin.post(file, {"act": "write", "seen": seen(admin.get(file).content.decode())})
    (root / "ORDERS.md").write_text("Look at the mail, and be kind.\n")

    admin.post(file, {"act": "take", "seen": seen(admin.get(file).content.decode())})

    agent.refresh_from_db()
    assert newest_of(agent).definition["instructions"] == "Look at the mail, and be kind."
