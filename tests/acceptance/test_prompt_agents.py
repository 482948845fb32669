"""An agent is made of a sentence in a browser, tried, and speaks up in an inbox and by mail; workers learn of it while they run, and a
run ends with the version that it began with."""

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from pytest_django import Settings

from agents.prompt_agents.catalog import LOOKS_APART
from tests.acceptance.test_operators_day import log_in
from tests.acceptance.test_ten_minutes import entry
from tests.support.post_office import MailServer, taking_mail
from tests.support.stack import SHOP, Stack, StackMaker, eventually
from tests.support.wire import Call, Wire

SENTENCE = "every weekday at 8 look at failed runs and tell me what to fix first"
RUNS = "SELECT id, status, version FROM runs_run WHERE agent = %s ORDER BY seq"


@pytest.fixture
def smtp() -> Iterator[MailServer]:
    with taking_mail() as server:
        yield server


def fire(stack: Stack, trigger: str, data: str | None = None) -> str:
    answer = stack.api("POST", f"/api/v1/triggers/{trigger}/fire/", {"data": data})
    assert answer.status == 202
    return str(answer.json()["event"])


@pytest.mark.chaos
@pytest.mark.browser
def test_a_sentence_becomes_an_agent_that_is_tried_and_speaks_up(
    make_stack: StackMaker, smtp: MailServer, page: Page, settings: Settings
) -> None:
    settings.EMAIL_URL = smtp.url
    stack = make_stack(env={**SHOP, "EMAIL_URL": smtp.url, "WAKEFUL_MODEL": "builtin"}, agents=True)
    stack.admit()
    with stack.orm():
        from runs.notifications.edit import create_recipient, open_inbox

        open_inbox("admin", by="test")
        create_recipient(name="ops", address="mailto:ops@example.com", by="test")
    stack.up()
    fire(stack, "failing")
    eventually(lambda: stack.query("SELECT id FROM runs_run WHERE agent = 'failing' AND status = 'failed'"))
    log_in(page, stack)

    # Made in words.
    entry(page, "Agents")
    page.get_by_role("link", name=re.compile("Prompt agents$")).first.click()
    page.get_by_title("Add prompt agent").click()
    page.locator("[name=name]").fill("morning-triage")
    page.locator("[name=instructions]").fill(SENTENCE)
    page.locator("[name=checklist]").fill("Which failed run is to be fixed first?")
    page.locator("[name=tools][value=failed_runs]").check()
    expect(page.get_by_text("At 08:00, Monday through Friday").first).to_be_visible()
    page.get_by_role("button", name="Create the agent").click()
    expect(page.get_by_text("look at failed runs and tell me what to fix first").first).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("^morning-triage active At 08:00"))).to_be_visible()

    # Tried: the verdict is shown, and nothing is sent.
    page.get_by_role("link", name="Try it now").click()
    with page.expect_navigation():
        page.get_by_role("button", name="Try it now").click(no_wait_after=True)
    expect(page.get_by_text("it has something to report")).to_be_visible()
    expect(page.get_by_text("the switch is not fixed").first).to_be_visible()
    assert not stack.query("SELECT id FROM runs_notification")
    assert not stack.query(RUNS, "morning-triage")

    # Woken: the verdict arrives by mail and in the inbox. No process was restarted.
    fire(stack, "morning-triage")
    eventually(lambda: smtp.letters)
    assert "the switch is not fixed" in str(smtp.letters[0].get_content())
    arrived = "SELECT name FROM runs_delivery WHERE status = 'sent' ORDER BY name"
    eventually(lambda: [row["name"] for row in stack.query(arrived)] == ["admin", "ops"])
    page.goto(f"{stack.url}/admin/inbox/")
    expect(page.get_by_text("the switch is not fixed").first).to_be_visible()

    # Edited: a new version with what changed.
    back_to(page, stack)
    page.get_by_role("link", name=re.compile("Edit$")).click()
    page.locator("[name=instructions]").fill("look at failed runs and name the worst")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row", name=re.compile("^2 admin:admin .* instructions .* name the worst"))).to_be_visible()

    # Its checklist is edited.
    page.get_by_role("link", name=re.compile("Checklist$")).click()
    page.get_by_role("link", name=re.compile("Edit$")).click()
    page.locator("[name=text_2]").fill("Is the newest backup older than a day?")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("row").filter(has_text="Is the newest backup").first).to_be_visible()

    # Silenced for a day: the next wake is quiet.
    back_to(page, stack)
    page.get_by_role("link", name=re.compile("Silence$")).click()
    page.get_by_role("button", name="Silence", exact=True).click()
    expect(page.get_by_text("Silenced until").first).to_be_visible()
    event = fire(stack, "morning-triage")
    quiet = "SELECT reason FROM triggers_decision WHERE event_id = %s AND outcome = 'quiet'"
    [decision] = eventually(lambda: stack.query(quiet, event))
    assert decision["reason"].startswith("its checklist is silenced until ")
    assert len(smtp.letters) == 1


def back_to(page: Page, stack: Stack) -> None:
    [agent] = stack.query("SELECT id FROM agents_promptagent")
    page.goto(f"{stack.url}/admin/agents/promptagent/{agent['id']}/change/")


@pytest.mark.chaos
def test_workers_learn_of_agents_while_they_run_and_a_run_keeps_its_version(make_stack: StackMaker, wire: Wire) -> None:
    """A run of version 1 waits for a person while version 2 is written: it ends as version 1 would, and the next begins with 2."""
    wire.script("first", [Call("final_result", notify=True, text="Fix billing first", items=[])])
    wire.script("second", [Call("final_result", notify=False, items=[])])
    stack = make_stack(env={**wire.env, "WAKEFUL_MODEL": "openai-chat:gpt-4o", "WAKEFUL_LEASE_RENEW": "0.75s"})
    stack.manage("prepare")
    for kind in ("dispatcher", "web"):
        stack.start(kind)
    stack.start("worker", concurrency=1)
    eventually(lambda: stack.query("SELECT id FROM runs_worker WHERE kind = 'worker'"))
    given = {
        "name": "triage",
        "instructions": "Look once.",
        "ask_first": True,
        "when": [{"events": ["look"]}],
    }
    assert stack.api("POST", "/api/v1/prompt-agents/", given).status == 201

    fire(stack, "triage", "[script first one]")
    eventually(lambda: [run for run in stack.query(RUNS, "triage") if run["status"] == "waiting"])
    edit = {"instructions": "Look twice.", "ask_first": False}
    assert stack.api("PATCH", "/api/v1/prompt-agents/triage/", edit).status == 200
    [approval] = stack.api("GET", "/api/v1/approvals/").json()["results"]
    stack.api("POST", f"/api/v1/approvals/{approval['id']}/decide/", {"decision": "approve"})
    eventually(lambda: [run for run in stack.query(RUNS, "triage") if run["status"] == "succeeded"])
    time.sleep(LOOKS_APART)  # what a worker has looked for within this time, it does not look for again
    fire(stack, "triage", "[script second two]")
    eventually(lambda: [run["status"] for run in stack.query(RUNS, "triage")] == ["succeeded"] * 2)

    old, new = stack.query(RUNS, "triage")
    numbers = {row["fingerprint"]: row["number"] for row in stack.query("SELECT * FROM agents_promptagentversion")}
    assert (numbers[old["version"]], numbers[new["version"]]) == (1, 2)
    assert (wire.asked("one"), wire.asked("two")) == ({0: 1}, {0: 1})
    assert "Look once." in str(wire.of("one")[0].body["messages"])
    assert "Look twice." in str(wire.of("two")[0].body["messages"])
    notified = "SELECT id FROM runs_notification WHERE text = 'Fix billing first'"
    assert len(stack.query(notified)) == 1

    # Deleted: its runs wait, and the reason is shown.
    assert stack.api("DELETE", "/api/v1/prompt-agents/triage/").status == 204
    eventually(
        lambda: not stack.query("SELECT id FROM runs_worker WHERE 'triage' = ANY(agents) AND stopped_at IS NULL")
    )
    stack.manage("verify")
