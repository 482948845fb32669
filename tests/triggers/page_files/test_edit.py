"""A checklist, or the instructions of a prompt agent, is kept in a file too: edited there or here, never overwritten unseen."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.models import Checklist, PageFile
from agents.prompt_agents.definition import Definition
from runs.actions.checklists import ItemEdit, create_checklist, edit_checklist
from runs.exceptions import IllegalState
from runs.models import AuditEntry
from triggers.page_files.edit import Comparison, compare, file_of, link_file, take_file, write_file
from triggers.page_files.pages import Named, Page
from triggers.prompt_agents.edit import create_prompt_agent, newest_of

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
OPS = Named(agent="ops")


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    settings.WAKEFUL_WORK_ROOTS = [str(tmp_path)]
    return tmp_path


@pytest.fixture
def checklist() -> Checklist:
    return create_checklist("ops", items=[ItemEdit(text="failed runs"), ItemEdit(text="backups", every=HOUR)], by="ada")


@pytest.fixture
def file(root: Path, checklist: Checklist) -> Path:
    link_file(OPS.page(), "ops/HEARTBEAT.md", by="ada")
    write_file(OPS.page(), by="ada")
    return root / "ops/HEARTBEAT.md"


def found(page: Page | None = None) -> Comparison:
    page = page or OPS.page()
    return compare(page, file_of(page))


def texts(checklist: Checklist) -> list[str]:
    return [item.text for item in checklist.items.all()]


def edit(checklist: Checklist, *items: str) -> None:
    edit_checklist(checklist.pk, [ItemEdit(text=text) for text in items], by="bob")


def test_a_checklist_is_written_as_a_page(file: Path) -> None:
    assert file.read_text() == "# Checklist of ops\n\n- failed runs\n- backups (every 1h)\n"
    assert found().is_same


def test_an_edit_of_the_file_is_taken_and_items_keep_their_outcomes(file: Path, checklist: Checklist) -> None:
    checklist.items.filter(text="backups").update(last_outcome="news")
    before = checklist.items.get(text="backups").pk
    file.write_text("# Ours\n\n- backups (every 2h)\n- disk (paused)\n")

    assert found().difference[5:] == [
        "-- failed runs", "-- backups (every 1h)", "+- backups (every 2h)", "+- disk (paused)",
    ]  # fmt: skip
    take_file(OPS.page(), by="ada")

    first, second = checklist.items.all()
    assert (first.pk, first.every, first.last_outcome) == (before, 2 * HOUR, "news")
    assert (second.text, bool(second.paused_at)) == ("disk", True)
    assert checklist.revisions.first().by == "ada"  # type: ignore[union-attr]
    assert found().is_same


def test_an_edit_here_is_written_and_what_stands_above_the_items_stays(file: Path, checklist: Checklist) -> None:
    file.write_text("# Ours\n<!-- each morning -->\n\n- failed runs\n- backups (every 1h)\n")
    edit(checklist, "disk")

    write_file(OPS.page(), by="ada", seen=found().seen)

    assert file.read_text() == "# Ours\n<!-- each morning -->\n\n- disk\n"


def test_what_was_edited_on_both_sides_is_replaced_only_by_who_has_seen_it(file: Path, checklist: Checklist) -> None:
    file.write_text("- by hand\n")
    edit(checklist, "in the admin")

    for act in (take_file, write_file):
        with pytest.raises(IllegalState, match="would be lost"):
            act(OPS.page(), by="ada")
    seen = found().seen
    file.write_text("- by hand, again\n")
    with pytest.raises(IllegalState, match="after what you have seen"):
        write_file(OPS.page(), by="ada", seen=seen)
    assert (file.read_text(), texts(checklist)) == ("- by hand, again\n", ["in the admin"])

    take_file(OPS.page(), by="ada", seen=found().seen)
    assert texts(checklist) == ["by hand, again"]


def test_an_edit_of_the_file_is_not_written_over_and_one_here_is_not_taken_over(
    file: Path, checklist: Checklist
) -> None:
    file.write_text("- by hand\n")
    with pytest.raises(IllegalState, match="The file was edited"):
        write_file(OPS.page(), by="ada")
    take_file(OPS.page(), by="ada")

    edit(checklist, "in the admin")
    with pytest.raises(IllegalState, match="The page here was edited"):
        take_file(OPS.page(), by="ada")


def test_comments_between_items_are_not_lost_unseen(file: Path, checklist: Checklist) -> None:
    file.write_text("- failed runs\n<!-- of the shop -->\n- backups (every 1h)\n")
    take_file(OPS.page(), by="ada")
    edit(checklist, "failed runs")

    with pytest.raises(IllegalState, match="headings or comments between its items"):
        write_file(OPS.page(), by="ada")


def test_an_edit_between_the_look_and_the_act_is_refused(file: Path, checklist: Checklist) -> None:
    page = OPS.page()
    edit(checklist, "of another person")
    file.write_text("- by hand\n")

    with pytest.raises(IllegalState, match="edited meanwhile"):
        take_file(page, by="ada", seen=found(page).seen)
    assert texts(checklist) == ["of another person"]


def test_a_crash_after_the_file_was_written_needs_no_repair(file: Path, checklist: Checklist) -> None:
    edit(checklist, "disk")
    before = PageFile.objects.values("digest", "number").get()
    write_file(OPS.page(), by="ada")
    PageFile.objects.update(**before)  # as if the process had died before it recorded that

    assert found().is_same
    write_file(OPS.page(), by="ada")
    assert PageFile.objects.get().number == OPS.page().number


def test_a_file_that_is_there_before_the_link_is_taken_only_where_nothing_is_lost(
    root: Path, checklist: Checklist
) -> None:
    (root / "a.md").write_text("- by hand\n")
    link_file(OPS.page(), "a.md", by="ada")
    with pytest.raises(IllegalState):
        take_file(OPS.page(), by="ada")

    empty = create_checklist("new", by="ada")
    (root / "b.md").write_text("- first\n")
    link_file(Named(agent="new").page(), "b.md", by="ada")
    take_file(Named(agent="new").page(), by="ada")
    assert texts(empty) == ["first"]


def test_a_page_with_a_fault_is_not_taken(file: Path, checklist: Checklist) -> None:
    file.write_text("- disk\nSee below.\n")

    assert "line 2" in found().state
    with pytest.raises(ValueError, match="line 2"):
        take_file(OPS.page(), by="ada")
    assert len(texts(checklist)) == 2


def test_only_pages_below_the_roots_are_files_and_each_of_one_checklist(file: Path, checklist: Checklist) -> None:
    for path in ("/etc/passwd.md", "../a.md", "run.sh"):
        with pytest.raises(ValueError):
            link_file(OPS.page(), path, by="ada")
    create_checklist("other", by="ada")
    with pytest.raises(IllegalState, match="of another page"):
        link_file(Named(agent="other").page(), str(file), by="ada")


def test_instructions_of_a_prompt_agent_are_a_page(root: Path) -> None:
    agent = create_prompt_agent("clerk", Definition(instructions="Look at the mail.", model="openai:x"), by="ada")
    orders = Named(agent="clerk", instructions=True)
    link_file(orders.page(), "clerk/ORDERS.md", by="ada")
    write_file(orders.page(), by="ada")
    (root / "clerk/ORDERS.md").write_text("Look at the mail.\r\nAnswer nothing.\r\n")

    take_file(orders.page(), by="ada")

    agent.refresh_from_db()
    written = Definition.load(newest_of(agent).definition)
    assert (agent.newest, written.instructions, written.model) == (2, "Look at the mail.\nAnswer nothing.", "openai:x")
    assert found(orders.page()).is_same
    assert AuditEntry.objects.filter(kind="promptagent", action="take_file", by="ada").exists()


def test_the_command_shows_edits_compares_takes_and_writes(
    root: Path, checklist: Checklist, capsys: pytest.CaptureFixture[str]
) -> None:
    def page(*words: str) -> str:
        call_command("page", *words)
        return capsys.readouterr().out

    (root / "in.md").write_text("- disk (every 1h)\n")
    assert page("show", "ops") == "# Checklist of ops\n\n- failed runs\n- backups (every 1h)\n"
    page("edit", "ops", str(root / "in.md"), "--number", "1")
    assert texts(checklist) == ["disk"]
    with pytest.raises(CommandError, match="edited meanwhile"):
        page("edit", "ops", str(root / "in.md"), "--number", "1")
    assert "no such file yet" in page("link", "ops", "HEARTBEAT.md")
    page("write", "ops")
    (root / "HEARTBEAT.md").write_text("- disk\n")
    edit(checklist, "mine")
    with pytest.raises(CommandError, match="is called") as differ:
        page("compare", "ops")
    assert "+- disk" in capsys.readouterr().out
    with pytest.raises(CommandError, match="would be lost"):
        page("take", "ops")
    assert "+- disk" in page("take", "ops", "--seen", str(differ.value).split()[-1])
    assert texts(checklist) == ["disk"]
    page("unlink", "ops")
    with pytest.raises(CommandError, match="not kept in a file"):
        page("compare", "ops")
    with pytest.raises(CommandError, match="has no checklist"):
        page("show", "other")
    with pytest.raises(CommandError, match="no prompt agent"):
        page("show", "ops", "--instructions")
