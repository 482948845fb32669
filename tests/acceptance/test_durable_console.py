"""What a person does for durable runs, in a browser, on the running stack: approve with other arguments, resolve what
nobody could know, fork from the step that failed, and try without doing it (more of that: test_shadow_run.py)."""

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_operators_day import log_in
from tests.support.stack import Stack, StackMaker, eventually

USER_APPS = Path(__file__).resolve().parent.parent / "userapps"

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def running(make_shared_stack: StackMaker) -> Stack:
    stack = make_shared_stack(env={"WAKEFUL_APPS": "desk,shop", "PYTHONPATH": str(USER_APPS)}, agents=True)
    stack.admit()
    return stack.up()


@pytest.fixture
def desk(running: Stack, page: Page) -> Page:
    log_in(page, running)
    return page


def test_a_waiting_run_is_approved_with_other_arguments(running: Stack, desk: Page) -> None:
    event = fire(running, "refund", {"invoice": "2026-118"})
    run_in(running, event, "waiting")

    desk.reload()
    expect(desk.get_by_role("button", name="Deny: Refund invoice 2026-118?")).to_be_visible()
    desk.get_by_role("link", name="Approvals 1", exact=True).click()
    desk.get_by_role("link", name="Refund invoice 2026-118?").click()
    expect(desk.get_by_text("refund asks: Refund invoice 2026-118?")).to_be_visible()

    open_dialog(desk, "Edit and approve")
    desk.locator("[name=arguments]").fill('{"invoice": "2026-118", "cents": }')
    submit(desk, "Approve these")
    expect(desk.locator("#modal-content").get_by_text(re.compile("not JSON"))).to_be_visible()
    desk.locator("[name=arguments]").fill('{"invoice": "2026-118", "cents": 100}')
    desk.locator("[name=reason]").fill("only the shipping")
    submit(desk, "Approve these")

    expect(desk.get_by_text("Edited by admin:admin: Refund invoice 2026-118?")).to_be_visible()
    assert run_in(running, event, "succeeded")["result"] == {"refunded": 100}
    expect(desk.get_by_role("navigation").get_by_role("link", name="Approvals", exact=True)).to_be_visible()


def test_anyone_who_has_the_link_decides_without_logging_in(running: Stack, page: Page) -> None:
    event = fire(running, "refund", {"invoice": "2026-117"})
    run = run_in(running, event, "waiting")
    [approval] = running.api("GET", "/api/v1/approvals/?status=pending").json()["results"]

    page.goto(approval["url"])
    expect(page.get_by_role("heading")).to_have_text("Refund invoice 2026-117?")
    page.get_by_label("Arguments").fill('{"invoice": "2026-117", "cents": 600}')
    page.get_by_label("Reason").fill("half of it")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.get_by_text("You have edited the arguments")).to_be_visible()
    page.get_by_role("button", name="Approve with edited arguments").click()

    expect(page.get_by_text("Edited on")).to_be_visible()
    expect(page.get_by_role("button")).to_have_count(0)
    assert running.api("GET", f"/api/v1/runs/{run['id']}/?wait=30").json()["result"] == {"refunded": 600}


@pytest.mark.chaos  # the page is in tests/config/console/runs/test_buttons.py; another test answers a dialog in a browser
def test_an_uncertain_run_is_resolved_with_what_a_person_found_out(running: Stack, desk: Page) -> None:
    event = fire(running, "charge", {})
    run = run_in(running, event, "uncertain")

    desk.reload()
    desk.get_by_role("link", name=re.compile("Runs 1$")).click()
    desk.get_by_role("link", name="Uncertain", exact=True).click()
    expect(desk.get_by_text(f"{run['id']}:charge card")).to_be_visible()
    desk.locator("#result_list").get_by_role("link", name="charge", exact=True).first.click()
    expect(desk.get_by_text("Uncertain step")).to_be_visible()
    expect(desk.locator("pre", has_text='"cents": 4200').first).to_be_visible()

    open_dialog(desk, "Resolve")
    desk.get_by_label(re.compile("It happened")).check()
    desk.locator("[name=result]").fill('{"id": "ch_7"}')
    submit(desk, "Resolve")

    expect(desk.get_by_text("Resolved.", exact=True)).to_be_visible()
    assert run_in(running, event, "succeeded")["result"] == {"charge": "ch_7"}


@pytest.mark.chaos  # the page is in tests/config/console/runs/test_buttons.py; another test answers a dialog in a browser
def test_a_failed_run_is_forked_from_the_step_that_failed_with_another_input(running: Stack, desk: Page) -> None:
    event = fire(running, "import", {"rows": -1})
    failed = run_in(running, event, "failed")

    desk.get_by_role("link", name=re.compile("Runs$")).first.click()
    desk.get_by_role("link", name="Failed", exact=True).click()
    desk.locator("#result_list").get_by_role("link", name="import", exact=True).first.click()
    entry = desk.locator("[data-key=write]")
    expect(entry.locator("summary")).to_contain_text("Permanent: -1 rows cannot be written")
    entry.locator("summary").click()
    entry.get_by_role("link", name="Fork from here").click()
    expect(desk.locator("[name=step]")).to_have_value("write")
    desk.locator("[name=input]").fill('{"rows": 3}')
    submit(desk, "Fork")

    expect(desk.get_by_text("Forked. This is the new run.")).to_be_visible()
    fork = run_in(running, event, "succeeded")
    assert fork["forked_from_id"] == failed["id"]
    assert fork["result"] == {"read_by": str(failed["id"]), "written": 3}
    desk.reload()
    expect(desk.locator("#causes").get_by_text("fork of")).to_be_visible()


def fire(stack: Stack, trigger: str, data: Any) -> str:
    """The id of the event."""
    answer = stack.api("POST", f"/api/v1/triggers/{trigger}/fire/", {"data": data})
    assert answer.status == 202
    return str(answer.json()["event"])


def run_in(stack: Stack, event: str, status: str) -> dict[str, Any]:
    """The run of the event that is in this status, as soon as there is one."""
    found = "SELECT * FROM runs_run WHERE %s::uuid = ANY(event_ids) AND status = %s"
    return eventually(lambda: stack.query(found, event, status))[0]


def open_dialog(page: Page, button: str) -> None:
    page.get_by_role("link", name=button).click()


def submit(page: Page, button: str) -> None:
    page.locator("#modal-content").get_by_role("button", name=button).click()
