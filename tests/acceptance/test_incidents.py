"""A failure that repeats, on real processes: one incident, one message, one click that requeues all of it, one all-clear."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_operators_day import log_in, press
from tests.support.points import Points
from tests.support.stack import SHOP, Stack, StackMaker, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.browser]

RUNS = 8


@pytest.fixture
def running(make_stack: StackMaker) -> Stack:
    stack = make_stack(env={**SHOP, "WAKEFUL_NOTIFY_TO": "inbox:admin"}, agents=True)
    stack.admit()
    return stack


def notification_texts(stack: Stack) -> list[str]:
    return [row["text"] for row in stack.query("SELECT text FROM runs_notification ORDER BY id")]


def test_failures_of_one_cause_are_reported_once_and_requeued_in_one_step(running: Stack, page: Page) -> None:
    points = Points(running.folder / "points")
    running.start("web")
    running.start("worker", concurrency=2)
    for _ in range(RUNS):
        assert running.api("POST", "/api/v1/triggers/failing/fire/").status == 202
    dispatcher = running.start("dispatcher", env=points.env)
    failed = "SELECT id FROM runs_run WHERE agent = 'failing' AND status = %s"
    points.arm("before_outbox_commit", "kill")
    eventually(lambda: points.hit("before_outbox_commit"))
    dispatcher.wait()
    running.start("dispatcher")

    eventually(lambda: len(running.query(failed, "failed")) == RUNS)
    one = "SELECT * FROM runs_incident WHERE subject = 'failing'"
    [incident] = eventually(lambda: [row for row in running.query(one) if row["count"] >= RUNS])
    assert (incident["count"], incident["in_a_row"], incident["cause"]) == (
        RUNS,
        RUNS,
        "RuntimeError: the switch is not fixed",
    )
    assert len([text for text in notification_texts(running) if text.startswith("Trigger failing: ")]) == 1
    sent = "SELECT * FROM runs_delivery WHERE status = 'sent' AND name = 'WAKEFUL_NOTIFY_TO'"
    eventually(lambda: running.query(sent))

    running.query("INSERT INTO shop_fixedswitch DEFAULT VALUES")
    log_in(page, running)
    page.get_by_role("link", name="Trigger failing").click()
    expect(page.get_by_text(f"Trigger failing: {RUNS} failed runs since the last success.")).to_be_visible()
    press(page, "Requeue its failed runs", submit="Requeue them")

    expect(page.get_by_text(f"{RUNS} requeued.")).to_be_visible()
    eventually(lambda: len(running.query(failed, "succeeded")) == RUNS)
    eventually(lambda: running.query(one)[0]["closed_at"])
    assert len(running.query("SELECT event FROM shop_effect WHERE agent = 'failing'")) == RUNS
    assert len([text for text in notification_texts(running) if text.startswith("Trigger failing succeeds again")]) == 1
    page.reload()
    expect(page.get_by_text(re.compile("Trigger failing succeeded again after"))).to_be_visible()
    running.manage("verify")
