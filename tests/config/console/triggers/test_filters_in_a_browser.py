"""A person writes a filter in a browser from the fields that recent events have, sees why it misses, and corrects it."""

import json

import pytest
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from agents import registry
from agents.agent import Agent
from tests.support.console_in_a_browser import log_in
from tests.support.triggers import make_event
from triggers.models import Trigger

pytestmark = [pytest.mark.chaos, pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def test_a_filter_is_written_by_clicks_and_corrected_by_its_trial(live_server: LiveServer, page: Page) -> None:
    registry.register(Agent(name="clicks", body=lambda run: None))
    make_event(
        type="order.paid", data={"kind": "order", "amount": 120, "customer": {"id": "c7"}, "api_key": "sk-12345678"}
    )
    make_event(type="order.paid", data={"kind": "order"})
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    log_in(page, live_server, "/admin/triggers/trigger/add/")

    page.locator("[name=slug]").fill("paid")
    page.locator("[name=agent]").select_option("clicks")
    page.get_by_role("button", name="order.paid").click()
    expect(page.locator("[name=types]")).to_have_value("order.paid")
    page.get_by_role("button", name="event.data.kind", exact=True).click()
    page.get_by_role("button", name="event.data.amount", exact=True).click()
    written = 'event.data.kind == "order" && has(event.data.amount) && event.data.amount == 120'
    expect(page.locator("[name=filter]")).to_have_value(written)
    page.get_by_role("button", name="Input", exact=True).click()
    page.get_by_role("button", name="event.data.customer.id", exact=True).click()
    assert json.loads(page.locator("[name=input]").input_value()) == {"id": "event.data.customer.id"}
    assert "sk-12345678" not in page.content()

    page.locator("[name=filter]").fill("event.data.kind == 'order' && event.data.amount > 200")
    page.get_by_role("button", name="Try it on recent events").click()
    expect(page.get_by_text("0 of 2 match")).to_be_visible()
    expect(page.locator(".clause-false").filter(has_text="event.data.amount > 200")).to_contain_text("= 120")
    expect(page.locator(".clause-error").first).to_contain_text("there is no field 'amount'")

    page.locator("[name=filter]").fill("event.data.amount = 100")
    page.get_by_role("button", name="Create the trigger").click()
    expect(page.locator(".fault mark").first).to_have_text("=")
    page.locator("[name=filter]").fill("has(event.data.amount) && event.data.amount > 100")
    page.get_by_role("button", name="Create the trigger").click()
    expect(page.get_by_text("Trigger paid is ready.")).to_be_visible()
    assert Trigger.objects.get(slug="paid").input == {"id": "event.data.customer.id"}
    assert wrong == []
