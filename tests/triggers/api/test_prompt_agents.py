"""Prompt agents over HTTP, from the command line and in files: the same services by every door."""

import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from agents.budget import Budget as Caps
from agents.models import Checklist, PromptAgent
from tests.support.api import Api
from tests.support.console import make_source
from tests.support.prompt_agents import SAYS, make_prompt_agent
from triggers.models import Schedule, Trigger
from triggers.prompt_agents.as_json import caps_of, exported
from triggers.prompt_agents.edit import delete_prompt_agent, newest_of
from triggers.prompt_agents.wakes import OnEvents
from triggers.transfer.carry_out import import_triggers
from triggers.transfer.check import ImportRefused
from triggers.transfer.export import export_triggers

pytestmark = pytest.mark.django_db
WHOLE: dict[str, Any] = {
    "name": "triage",
    "instructions": SAYS,
    "notify_to": ["ops"],
    "checklist": ["Are there failed runs?", {"text": "Is the newest backup older than a day?", "every": "6h"}],
    "budget": {"day_usd": "1"},
    "when": [
        {"schedule": "every weekday at 08:00", "tz": "Europe/Vienna"},
        {"events": ["invoice.*"], "source": "billing"},
    ],
}


def command(*words: str) -> str:
    out = io.StringIO()
    call_command("prompt_agent", *words, stdout=out)
    return out.getvalue()


# The API


def test_a_prompt_agent_is_made_read_edited_deleted_and_restored() -> None:
    make_source("billing")
    api = Api()

    made = api.post("prompt-agents/", WHOLE)
    assert (made.status, made.body["version"], made.body["triggers"]) == (201, 1, ["triage", "triage-2"])
    assert made.body["checklist"][1] == {"text": "Is the newest backup older than a day?", "every": 21600.0}
    [listed] = api.get("prompt-agents/").body["results"]
    assert listed == api.get("prompt-agents/triage/").body == made.body
    edited = api.patch("prompt-agents/triage/", {"version": 1, "ask_first": True, "checklist": ["disk"]})
    assert (edited.status, edited.body["version"], edited.body["ask_first"]) == (200, 2, True)
    assert (edited.body["instructions"], edited.body["checklist"]) == (SAYS, ["disk"])
    versions = api.get("prompt-agents/triage/versions/").body["results"]
    assert [(one["number"], one["by"], one["changed"]) for one in versions] == [
        (2, "token:ci", ["ask_first"]),
        (1, "token:ci", []),
    ]
    assert api.delete("prompt-agents/triage/").status == 204
    assert api.get("prompt-agents/").body["results"] == []
    assert api.post("prompt-agents/triage/restore/").body["deleted_at"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"instructions": "x" * 20_001}, "instructions"),
        ({"name": "Triage"}, "name"),
        ({"tools": ["gone"]}, "tools"),
        ({"when": [{"schedule": "now and then"}]}, "when"),
        ({"when": [{"moon": "full"}]}, "when"),
        ({"when": [{"events": ["a"], "source": "gone"}]}, "source"),
        ({"checklist": [7]}, "checklist"),
        ({"budget": {"year_usd": "1"}}, "budget"),
        ({"mood": "cheerful"}, "mood"),
    ],
)
def test_each_wrong_field_is_named_and_nothing_is_made(body: dict[str, Any], field: str) -> None:
    refused = Api().post("prompt-agents/", {"name": "triage", "instructions": SAYS, **body})

    assert (refused.status, list(refused.body)) == (400, [field])
    assert not PromptAgent.objects.exists()


def test_an_edit_of_an_older_version_is_a_conflict() -> None:
    make_prompt_agent()
    api = Api()
    api.patch("prompt-agents/triage/", {"instructions": "Look twice."})

    refused = api.patch("prompt-agents/triage/", {"instructions": "Look thrice.", "version": 1})

    assert (refused.status, refused.body["status"]) == (409, "edited")


def test_permission_to_view_prompt_agents_does_not_cover_make_edit_or_try() -> None:
    make_prompt_agent()
    api = Api(["agents.view_promptagent"])

    assert api.get("prompt-agents/triage/").status == 200
    assert api.post("prompt-agents/", WHOLE).status == 403
    assert api.patch("prompt-agents/triage/", {"instructions": "x"}).status == 403
    assert api.post("prompt-agents/triage/try/").status == 403


# The command line


def test_a_sentence_is_enough() -> None:
    output = command("create", "triage", "--says", f"every weekday at 8 {SAYS}", "--tz", "Europe/Vienna", "--to", "ops")

    assert output == "created triage, version 1; triggers: triage\n"
    assert newest_of(PromptAgent.objects.get()).definition["instructions"] == SAYS
    assert Schedule.objects.get(trigger__slug="triage").task.crontab.hour == "8"
    assert "triage  version 1" in command("list")


def test_the_command_makes_and_edits_a_prompt_agent_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "triage.toml"
    file.write_text(
        'instructions = "Look."\nchecklist = ["disk"]\n[budget]\nday_usd = "1"\n[[when]]\nschedule = "every 30m"\n'
    )
    command("create", "triage", "--file", str(file))
    file.write_text('ask_first = true\nchecklist = ["disk", "backups"]\n')

    assert command("edit", "triage", str(file)) == "triage has version 2\n"
    shown = json.loads(command("show", "triage"))
    assert (shown["instructions"], shown["ask_first"], shown["budget"]) == ("Look.", True, {"day_usd": "1"})
    assert shown["checklist"] == ["disk", "backups"]
    command("delete", "triage")
    assert command("restore", "triage") == "restored triage; its triggers are disabled\n"


def test_a_fault_is_reported(tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_text('{"instructions": 7}')

    for words in (["create", "triage", "--says", ""], ["show", "gone"], ["create", "x", "--file", str(tmp_path / "no.toml")],
                  ["create", "x", "--file", str(tmp_path / "wrong.json")]):  # fmt: skip
        with pytest.raises(CommandError):
            command(*words)
    assert not PromptAgent.objects.exists()


# Files of another system


def test_a_prompt_agent_is_exported_with_its_triggers_and_imported() -> None:
    make_source("billing")
    Api().post("prompt-agents/", WHOLE)
    content = json.loads(json.dumps(export_triggers(["triage"]).content))
    before = exported(PromptAgent.objects.get())
    assert [agent["name"] for agent in content["prompt_agents"]] == ["triage"]
    _forget_all()

    done = import_triggers(content, by="bob")

    assert "prompt agent triage" in {change.what for change in done.changes}
    assert exported(PromptAgent.objects.get()) == before
    assert Trigger.objects.get(slug="triage").agent == "triage"
    assert import_triggers(content, by="bob").changes == []


def test_an_import_edits_an_existing_prompt_agent() -> None:
    make_prompt_agent(checklist=[])
    content = export_triggers().content
    content["prompt_agents"][0] |= {"instructions": "Look twice.", "checklist": ["disk"], "budget": {"day_usd": "2"}}

    [change] = import_triggers(content, by="bob").changes

    assert set(change.fields) == {"instructions", "checklist", "budget"}
    assert newest_of(PromptAgent.objects.get()).by == "bob"
    assert [item.text for item in Checklist.objects.get(agent="triage").items.all()] == ["disk"]


def test_a_tool_that_this_system_lacks_refuses_the_whole_file() -> None:
    make_prompt_agent()
    content = export_triggers().content
    content["prompt_agents"][0]["tools"] = ["gone"]

    with pytest.raises(ImportRefused, match="prompt agent triage: tools: no tool 'gone' is registered"):
        import_triggers(content, by="bob")


def _forget_all() -> None:
    """As another system, which has the source alone."""
    from django_celery_beat.models import PeriodicTask

    from runs.models import Budget

    agent = PromptAgent.objects.get()
    delete_prompt_agent(agent.pk, by="test")
    PeriodicTask.objects.all().delete()
    Trigger.objects.all().delete()
    Checklist.objects.all().delete()
    Budget.objects.all().delete()


# Between systems, and within limits


def test_a_deleted_one_stays_behind_with_its_triggers() -> None:
    agent = make_prompt_agent(when=[OnEvents(types=["a.b"])])
    delete_prompt_agent(agent.pk, by="ada")

    export = export_triggers()

    assert export.content["triggers"] == []
    assert export.notes == ["trigger triage is skipped: its prompt agent is deleted"]


def test_a_wrong_item_of_a_checklist_refuses_the_file() -> None:
    entry = {"name": "triage", "instructions": SAYS, "checklist": ["x" * 2001]}
    content = {"format": "wakeful triggers", "version": 1, "prompt_agents": [entry]}

    with pytest.raises(ImportRefused, match="prompt agent triage: item 1: the text must have"):
        import_triggers(content, by="ada")

    assert not PromptAgent.objects.exists()


def test_an_edit_by_a_file_is_whole_or_not_at_all(tmp_path: Path) -> None:
    make_prompt_agent()
    file = tmp_path / "triage.json"
    file.write_text(json.dumps({"instructions": "Look twice.", "checklist": ["x" * 2001]}))

    with pytest.raises(CommandError, match="item 1"):
        command("edit", "triage", str(file))

    assert newest_of(PromptAgent.objects.get()).definition["instructions"] == SAYS


def test_caps_that_there_are_change_by_those_who_may_raise_budgets() -> None:
    make_prompt_agent(budget=Caps(day_usd="1"))
    author = Api(["agents.change_promptagent"], name="author")

    assert author.patch("prompt-agents/triage/", {"budget": {"day_usd": "1000"}}).status == 403
    assert author.delete("prompt-agents/triage/").status == 204
    assert author.post("prompt-agents/", {**WHOLE, "when": [], "budget": {"day_usd": "1000"}}).status == 403
    assert caps_of("triage") == {"day_usd": "1"}
    assert author.post("prompt-agents/", {**WHOLE, "name": "other", "when": []}).status == 201


def test_the_data_of_a_trial_is_no_argument_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument may have 128 KiB at most, and every user of the machine sees it."""
    make_prompt_agent()
    data = {"text": "x" * 200_000}
    seen: dict[str, Any] = {}

    def run(words: list[str], **options: Any) -> Any:
        seen.update(words=words, **options)
        report: dict[str, Any] = {
            "outcome": "stops",
            "error": "",
            "stop": None,
            "result": None,
            "left": {},
            "seconds": 1.0,
        }
        return subprocess.CompletedProcess(words, 0, json.dumps([report]), "")

    monkeypatch.setattr(subprocess, "run", run)

    assert Api().post("prompt-agents/triage/try/", {"data": data}).status == 200
    assert seen["words"][-3:] == ["--data", "-", "--json"]
    assert json.loads(seen["input"]) == data
