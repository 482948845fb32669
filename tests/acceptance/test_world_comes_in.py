"""From a provider to a run in a browser, on the running stack: a Stripe source is added and tested, a filter is written from the
fields of its events and tried, and yesterday's events are replayed to a second trigger."""

import os
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_operators_day import log_in, press
from tests.support.stack import SHOP, StackMaker, eventually

pytestmark = [pytest.mark.browser, pytest.mark.chaos]

AMOUNT = "event.data.data.object.amount_paid"
RUNS = "SELECT id, status FROM runs_run WHERE trigger = %s"
# Every third one is too small for the filter.
# Events are searched in the order in which they came: those of yesterday come before those of today.
MAKE_ROOM = """
DO $$ BEGIN
  SET LOCAL session_replication_role = replica;  -- events are immutable
  UPDATE triggers_event SET seq = seq + 100;
  PERFORM setval('triggers_seq', nextval('triggers_seq') + 100);
END $$
"""
YESTERDAY = """
INSERT INTO triggers_event (seq, id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256,
                            received_at, dispatched_at, root_id, depth)
SELECT n, made.id, source.id, '/hooks/payments/', 'evt_' || n, 'invoice.paid', 'in_' || n,
  jsonb_build_object('data', jsonb_build_object('object', jsonb_build_object('amount_paid', mod(n, 3) * 5000))),
  '', '{}', '', moment, moment, made.id, 0
FROM (SELECT id FROM triggers_source WHERE slug = 'payments') source, generate_series(1, 45) n,
LATERAL (SELECT now() - interval '1 day' + n * interval '1 minute' AS moment) at,
LATERAL (SELECT (lpad(to_hex((extract(epoch FROM moment) * 1000)::bigint), 12, '0') || '7'
                 || substr(md5(n::text), 1, 3) || 'a' || substr(md5(n::text), 4, 15))::uuid AS id) made
RETURNING id
"""


def test_a_provider_is_added_filtered_and_its_past_is_replayed(make_stack: StackMaker, page: Page) -> None:
    stack = make_stack(env=SHOP, agents=True)
    stack.admit()
    stack.up()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(f"{page.url}: {message.text}") if message.type == "error" else None)
    log_in(page, stack)

    # A source, by its form: its name makes the address of the steps.
    page.get_by_role("link", name=re.compile("Sources$")).click()
    page.get_by_title("Add source").click()
    page.get_by_placeholder("GitHub, HMAC").fill("stripe")
    expect(page.locator("a.console-tile:visible")).to_have_count(1)
    keep_picture(page, "kinds")
    page.locator("a.console-tile:visible").click()
    page.locator("[name=slug]").fill("payments")
    expect(page.locator(".console-steps")).to_contain_text(f"{stack.url}/hooks/payments/")
    keep_picture(page, "new-source")
    page.locator("[name=secret]").fill("whsec_for_the_test_0123456789")
    page.get_by_role("button", name="Create the source").click()
    expect(page.get_by_text("Source payments is created.")).to_be_visible()
    expect(page.get_by_text("None names this source. It has no event yet")).to_be_visible()
    keep_picture(page, "source")

    # Its test event, which no trigger wants yet.
    press(page, "Send a test event", submit="Send it")
    expect(page.get_by_text("Test event accepted (202)")).to_be_visible()
    keep_picture(page, "tested")
    page.get_by_text("Test event accepted (202)").get_by_role("link").click()
    expect(page.get_by_text("No trigger matched it, so nothing ran")).to_be_visible()
    keep_picture(page, "unmatched")

    # A trigger for events like this; its filter is made of the fields that it has, and tried.
    page.get_by_role("link", name="Add a trigger for events like this").click()
    expect(page.locator("[name=source]")).to_have_value("payments")
    expect(page.locator("[name=types]")).to_have_value("invoice.paid")
    page.locator("[name=slug]").fill("large-payments")
    page.locator("[name=agent]").select_option("ticker")
    page.get_by_role("button", name=AMOUNT, exact=True).click()
    expect(page.locator("[name=filter]")).to_have_value(f"{AMOUNT} == 4200")
    page.locator("[name=filter]").fill(f"{AMOUNT} > 5000")
    page.get_by_role("button", name="Try it on recent events").click()
    expect(page.get_by_text("0 of 1 match")).to_be_visible()
    expect(page.locator(".clause-false")).to_contain_text(f"{AMOUNT} = 4200")
    keep_picture(page, "missed")
    page.locator("[name=filter]").fill(f"{AMOUNT} > 4000")
    page.get_by_role("button", name="Try it on recent events").click()
    expect(page.get_by_text("1 of 1 match")).to_be_visible()
    page.get_by_role("button", name="Create the trigger").click()
    expect(page.get_by_text("Trigger large-payments is ready.")).to_be_visible()
    keep_picture(page, "trigger")

    # The next test event starts a run.
    page.get_by_role("link", name=re.compile("Sources$")).click()
    page.locator("#result_list").get_by_role("link", name="payments", exact=True).click()
    press(page, "Send a test event", submit="Send it")
    eventually(lambda: [run["status"] for run in stack.query(RUNS, "large-payments")] == ["succeeded"])
    keep_picture(page, "listened-to")
    page.get_by_text("Test event accepted (202)").get_by_role("link").click()
    expect(page.get_by_text("Started 1 run.")).to_be_visible()
    keep_picture(page, "event")
    page.get_by_role("row", name=re.compile("ticker large-payments succeeded")).get_by_role("link").click()
    expect(page.get_by_text("Succeeded: all its work is committed.")).to_be_visible()
    keep_picture(page, "run")

    # A second trigger, for yesterday's events.
    stack.query(MAKE_ROOM)
    stack.query(YESTERDAY)
    page.goto(f"{stack.url}/admin/triggers/trigger/add/?source=payments&types=invoice.*")
    page.locator("[name=slug]").fill("second")
    page.locator("[name=agent]").select_option("effect")
    page.locator("[name=filter]").fill(f"{AMOUNT} > 0")
    page.get_by_role("button", name="Create the trigger").click()
    expect(page.get_by_text("Trigger second is ready.")).to_be_visible()
    page.get_by_role("link", name=re.compile("Events$")).click()
    page.get_by_label("Type", exact=True).fill("invoice.*")
    page.get_by_label("Received from").fill("2d")
    page.get_by_label("Received before").fill("1h")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.get_by_text("45 in total")).to_be_visible()
    keep_picture(page, "found")
    page.get_by_role("link", name="Replay these").click()
    page.get_by_label("Only these triggers").select_option(label="second")
    page.get_by_label("Rate").fill("20")
    expect(page.get_by_text("The search finds 45 events.")).to_be_visible()
    expect(page.locator(".preview-body").get_by_text("large-payments")).to_have_count(0)
    expect(page.locator(".preview-body").get_by_role("row", name="second 45")).to_be_visible()
    page.get_by_role("button", name="Try a sample").click()
    expect(page.get_by_text("The newest events")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("invoice.paid second$")).first).to_be_visible()
    keep_picture(page, "sampled")
    page.get_by_role("button", name="Start the replay").click()
    expect(page.get_by_text("Started a replay of 45 events.")).to_be_visible()
    keep_picture(page, "replaying")
    expect(page.get_by_text("Progress: 45 of 45")).to_be_visible(timeout=60_000)
    eventually(lambda: [run["status"] for run in stack.query(RUNS, "second")] == ["succeeded"] * 30)
    keep_picture(page, "replayed")
    assert len(stack.query(RUNS, "large-payments")) == 1
    assert wrong == []


def keep_picture(page: Page, name: str) -> None:
    """To look at, if a folder is named."""
    if folder := os.environ.get("PICTURES"):
        folder_of_it = Path(folder)
        number = len(list(folder_of_it.glob("*.png"))) + 1
        page.screenshot(path=folder_of_it / f"{number:02d}-{name}.png", full_page=True)
