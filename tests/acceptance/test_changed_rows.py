"""A model is watched from the admin, and a row of it is changed by SQL: the run shows the old and the new values. Then a statement is
one event."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.acceptance.test_operators_day import log_in, press
from tests.acceptance.test_world_comes_in import keep_picture
from tests.support.stack import SHOP, StackMaker, eventually

pytestmark = [pytest.mark.browser, pytest.mark.chaos]

RUNS = "SELECT id, status FROM runs_run WHERE trigger = 'touched'"


def test_a_watched_model_is_changed_by_sql(make_stack: StackMaker, page: Page) -> None:
    stack = make_stack(env=SHOP, agents=True)
    stack.admit()
    stack.up(beat=False)
    log_in(page, stack)

    page.goto(f"{stack.url}/admin/triggers/source/add/?choice=table")
    page.locator("[name=slug]").fill("shared-rows")
    page.locator("[name=table__table]").fill("shop.Shared")
    page.locator("[name=table__columns]").fill("touched")
    page.locator("[name=table__condition]").fill('{"touched__gte": 3}')
    keep_picture(page, "watch")
    page.get_by_role("button", name="Create the source").click()
    expect(page.get_by_text("Its triggers are there: each change is an event")).to_be_visible()
    press(page, "Send a test event", submit="Send it")
    expect(page.get_by_text("Test event accepted (202)")).to_be_visible()
    keep_picture(page, "watched")
    source = page.url

    page.goto(f"{stack.url}/admin/triggers/trigger/add/?source=shared-rows&types=db.shop.shared.update")
    page.locator("[name=slug]").fill("touched")
    page.locator("[name=agent]").select_option("effect")
    page.get_by_role("button", name="Create the trigger").click()
    expect(page.get_by_text("Trigger touched is ready.")).to_be_visible()

    stack.query("UPDATE shop_shared SET touched = 2 WHERE id = 1 RETURNING id")  # the condition is not met
    stack.query("UPDATE shop_shared SET touched = 7 WHERE id = 1 RETURNING id")
    eventually(lambda: [run["status"] for run in stack.query(RUNS)] == ["succeeded"])

    page.goto(f"{stack.url}/admin/triggers/event/")
    expect(page.locator("#result_list").get_by_text("db.shop.shared.update")).to_have_count(1)
    page.goto(f"{stack.url}/admin/runs/run/{stack.query(RUNS)[0]['id']}/change/")
    expect(page.get_by_text("Succeeded: all its work is committed.")).to_be_visible()
    shown = page.locator("body").inner_text()
    assert re.search(r'"old":\s*{[^}]*"touched":\s*2', shown), shown
    assert re.search(r'"new":\s*{[^}]*"touched":\s*7', shown), shown
    keep_picture(page, "run")

    page.goto(source)
    page.locator("a[href$='/edit/']").click()
    page.locator("[name=table__each]").select_option("statement")
    keep_picture(page, "each-statement")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Its triggers are there: each statement is an event")).to_be_visible()
    expect(page.get_by_text("Sweep now")).to_have_count(0)
    stack.query("UPDATE shop_shared SET touched = 9 RETURNING id")
    page.goto(f"{stack.url}/admin/triggers/event/")
    page.locator("#result_list").get_by_role("link", name="db.shop.shared.update.statement").click()
    expect(page.locator("body")).to_contain_text(re.compile(r'"rows":\s*1'))
    keep_picture(page, "statement")
