"""A prompt agent's pages: made in words, previewed, edited from the version that was seen, deleted and restored."""

from decimal import Decimal
from typing import Any

import pytest
from django.test import Client

from agents.budget import Budget as Caps
from agents.models import Checklist, PromptAgent
from agents.prompt_agents.definition import Definition
from config.console.prompt_agents.page import _cells
from runs.connections.edit import create_connection
from runs.models import Budget
from tests.config.console.conftest import LogIn
from tests.support.console import page_of
from tests.support.prompt_agents import SAYS, make_prompt_agent
from triggers.models import Source, Trigger
from triggers.prompt_agents.edit import Change, delete_prompt_agent, edit_prompt_agent, newest_of

NEW = "/admin/agents/promptagent/add/"
GIVEN: dict[str, Any] = {
    "name": "triage",
    "instructions": f"every weekday at 8 {SAYS}",
    "tz": "Europe/Vienna",
    "notify": "on",
    "tools": ["failed_runs"],
    "checklist": "Are there failed runs?\n\nIs the disk full?",
    "day_usd": "1",
}


def errors_of(answer: Any) -> dict[str, list[str]]:
    return dict(answer.context["form"].errors)


def test_a_sentence_makes_an_agent_with_its_schedule(admin: Client) -> None:
    answer = admin.post(NEW, GIVEN, follow=True)

    agent = PromptAgent.objects.get()
    assert newest_of(agent).definition["instructions"] == SAYS
    assert newest_of(agent).by == "admin:ada"
    assert str(Trigger.objects.get(agent="triage").schedules.get().task.crontab.timezone) == "Europe/Vienna"
    items = Checklist.objects.get(agent="triage").items.values_list("text", flat=True)
    assert list(items) == ["Are there failed runs?", "Is the disk full?"]
    assert Budget.objects.get(name="triage").cap == 1
    page = answer.content.decode()
    assert "At 08:00, Monday through Friday" in page
    assert "$1.00 a day" in page


def test_the_schedule_is_shown_before_anything_is_made(admin: Client) -> None:
    shown = admin.post("/admin/agents/promptagent/preview/", GIVEN).content.decode()
    page = admin.post(NEW, {**GIVEN, "_preview": "1"}).content.decode()

    assert "At 08:00, Monday through Friday" in shown
    assert "At 08:00, Monday through Friday" in page
    assert not PromptAgent.objects.exists()


def test_a_deadline_at_the_beginning_is_shown_and_makes_a_switch(admin: Client) -> None:
    given = {**GIVEN, "instructions": f"at 3 pm, unless ci.passed for branch main came since noon, {SAYS}"}
    shown = admin.post("/admin/agents/promptagent/preview/", given).content.decode()
    page = admin.post(NEW, given, follow=True).content.decode()

    assert "If it does not come: ci.passed by 15:00 (Europe/Vienna), since 12:00" in shown
    assert newest_of(PromptAgent.objects.get()).definition["instructions"] == SAYS
    assert Trigger.objects.get(agent="triage").source == "triage"
    assert "absence.opened" in page

    agent = PromptAgent.objects.get()
    words = {"when": "every friday at 17:00 unless report.sent came", "tz": "UTC"}
    admin.post(page_of("agents_promptagent", agent).replace("/change/", "/wake/"), words)
    assert Source.objects.get(slug="triage-2").settings["days"] == "fri"


def test_a_deadline_of_keys_that_are_not_named_is_refused_where_it_stands(admin: Client) -> None:
    given = {**GIVEN, "instructions": f"at 3 pm, unless ci.passed for this branch came, {SAYS}"}

    assert "which ones are expected" in errors_of(admin.post(NEW, given))["instructions"][0]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": "Triage"}, "name"),
        ({"instructions": "every weekday at 8"}, "instructions"),
        ({"when": "now and then"}, "when"),
        ({"tools": ["gone"]}, "tools"),
        ({"emit": "run.signal"}, "emit"),
        ({"types": "a.b", "filter": "event."}, "filter"),
    ],
)
def test_a_fault_stands_at_its_field(admin: Client, wrong: dict[str, Any], field: str) -> None:
    answer = admin.post(NEW, {**GIVEN, **wrong})

    assert list(errors_of(answer)) == [field]
    assert not PromptAgent.objects.exists()


def test_an_edit_of_a_version_that_is_not_the_newest_is_refused(admin: Client) -> None:
    agent = make_prompt_agent()
    edit_prompt_agent(agent.pk, Definition(instructions="Look twice."), by="bob")
    edit = {"instructions": "Look thrice.", "notify": "on", "version": "1"}

    answer = admin.post(f"/admin/agents/promptagent/{agent.pk}/edit/", edit, follow=True)

    assert "was edited meanwhile" in answer.content.decode()
    assert newest_of(PromptAgent.objects.get()).definition["instructions"] == "Look twice."


def test_a_page_shows_what_each_version_changed_and_the_tools_that_are_gone(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = make_prompt_agent(tools=("failed_runs",))
    edit_prompt_agent(agent.pk, Definition(instructions="Look twice.", tools=("failed_runs",)), by="bob")
    monkeypatch.setattr("agents.tools.toolbox.all_tools", list)

    page = admin.get(page_of("agents_promptagent", agent)).content.decode()

    assert "Look twice." in page
    assert SAYS in page
    assert "It may use failed_runs, which is not registered: its runs fail." in page


def test_a_deleted_one_offers_to_be_restored_and_nothing_else(admin: Client) -> None:
    agent = make_prompt_agent()
    delete_prompt_agent(agent.pk, by="bob")

    page = admin.get(page_of("agents_promptagent", agent)).content.decode()

    assert "Restore it to let them" in page
    assert f"/admin/agents/promptagent/{agent.pk}/try/" not in page
    assert f"/admin/agents/promptagent/{agent.pk}/restore/" in page


def test_viewers_of_prompt_agents_cannot_make_edit_try_or_wake_them(log_in: LogIn) -> None:
    agent = make_prompt_agent()
    client = log_in("agents.view_promptagent")

    assert client.get(page_of("agents_promptagent", agent)).status_code == 200
    for path in (NEW, *(f"/admin/agents/promptagent/{agent.pk}/{name}/" for name in ("edit", "try", "wake"))):
        assert client.post(path).status_code == 403


@pytest.mark.parametrize("amount", ["10000000000000", "0.00000000001"])
def test_an_amount_that_is_no_cap_is_reported(admin: Client, amount: str) -> None:
    answer = admin.post(NEW, {**GIVEN, "day_usd": amount})

    assert "is not an amount from 0 to a trillion" in str(errors_of(answer))


def test_a_prompt_agent_over_the_limit_is_an_error_of_the_form(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.prompt_agents.edit.MOST", 0)

    assert "Delete one first" in str(errors_of(admin.post(NEW, GIVEN)))


def test_caps_of_a_deleted_one_are_changed_by_those_who_may_raise_budgets(log_in: LogIn) -> None:
    agent = make_prompt_agent(budget=Caps(day_usd="0.5"))
    delete_prompt_agent(agent.pk, by="bob")

    answer = log_in("agents.view_promptagent", "agents.change_promptagent").post(NEW, GIVEN)

    assert "has caps, which you may not change" in str(errors_of(answer))
    assert Budget.objects.get(name="triage").cap == Decimal("0.5")


def test_a_diff_of_long_instructions_shows_the_changed_lines() -> None:
    before = [f"{number}. Look at queue {number} of the shop." for number in range(300)]
    after = [line.replace("queue", "table") if number % 2 else line for number, line in enumerate(before)]

    removed, added = _cells(Change(what="instructions", before="\n".join(before), after="\n".join(after)))

    assert removed.splitlines() == before[1::2]
    assert added.splitlines() == after[1::2]


def test_the_form_offers_ones_own_connections_and_keeps_the_choice(log_in: LogIn) -> None:
    may = "agents.change_promptagent", "agents.view_promptagent"
    ada, bob = log_in(*may), log_in(*may, name="bob")
    for name, owner in (("shared", ""), ("own", "ada")):
        create_connection(
            name=name, provider="google", client_id="id", client_secret="secret-1234567", owner=owner, by="admin:ada"
        )
    clerk = {**GIVEN, "tools": ["draft_mail"], "connection_mail": "own", "by_thread": "on"}

    pages = [person.get(NEW).content.decode() for person in (ada, bob)]
    assert ['<option value="own"' in one for one in pages] == [True, False]
    assert "connection_mail" in errors_of(bob.post(NEW, clerk))
    page = ada.post(NEW, clerk, follow=True).content.decode()

    agent = PromptAgent.objects.get()
    edit = f"/admin/agents/promptagent/{agent.pk}/edit/"
    assert newest_of(agent).definition["connections"] == {"mail": "own"}
    assert "It acts for ada, who alone may edit it." in page
    changed = {**clerk, "version": 1, "instructions": "Draft what I say."}
    assert "belongs to ada" in str(errors_of(bob.post(edit, changed)))
    assert "choose one for draft_mail" in str(errors_of(ada.post(edit, {**changed, "connection_mail": ""})))
    ada.post(edit, changed)
    agent.refresh_from_db()
    assert (agent.newest, newest_of(agent).definition["acts_for"]) == (2, "ada")
