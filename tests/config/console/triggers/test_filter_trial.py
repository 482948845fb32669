"""Try the filter: for those who may see events, with expressions of their own only for those who may change the trigger."""

from typing import Any

import pytest
from django.test import Client

from tests.config.console.conftest import LogIn
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import expressions
from triggers.models import Trigger

pytestmark = pytest.mark.django_db
FORM = {"types": "visitor.*", "source": "", "key": "", "input": "{}"}


def path_of(trigger: Trigger) -> str:
    return f"/admin/triggers/trigger/{trigger.pk}/try/"


def test_a_viewer_tries_the_stored_filter_only(log_in: LogIn) -> None:
    trigger = make_trigger(filter='event.data.name == "ada"')
    make_event(data={"name": "ada"})
    viewer = log_in("triggers.view_trigger", "triggers.view_event")

    shown = viewer.get(path_of(trigger))

    assert "1 of 1 match" in shown.content.decode() and "Try it" not in shown.content.decode()
    assert viewer.post(path_of(trigger), {**FORM, "filter": "event.data"}).status_code == 403


def test_who_may_not_see_events_does_not_see_what_a_filter_says_to_them(log_in: LogIn) -> None:
    trigger = make_trigger()

    assert log_in("triggers.view_trigger").get(path_of(trigger)).status_code == 403
    assert log_in("triggers.change_trigger", name="bob").get(path_of(trigger)).status_code == 403


def test_no_expression_is_evaluated_in_the_web_process(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("evaluated here")

    monkeypatch.setattr(expressions, "value", never)
    trigger = make_trigger(filter="event.data.n == 1")
    event = make_event(data={"n": 1})

    shown = admin.post(path_of(trigger), {**FORM, "filter": "event.data.n == 1"}).content.decode()
    assert "1 of 1 match" in shown
    assert "greeter" in admin.get(f"/admin/triggers/event/{event.pk}/shadow/").content.decode()


def test_an_expression_that_would_take_hours_ends_and_the_page_says_why(admin: Client, settings: Any) -> None:
    settings.WAKEFUL_MATCH_TIME = settings.WAKEFUL_MATCH_TIME / 4
    trigger = make_trigger()
    make_event()
    hours = "[{}].map(a, [{}].map(b, [{}].map(c, [{}].map(d, 1)))).size() == 0".replace("{}", ",".join("1" * 60))

    assert "WAKEFUL_MATCH_TIME" in admin.post(path_of(trigger), {**FORM, "filter": hours}).content.decode()


def test_an_expression_over_a_limit_is_an_error_of_its_field(admin: Client) -> None:
    shown = admin.post(path_of(make_trigger()), {**FORM, "filter": "1+" * 6000 + "1==1"})

    assert shown.status_code == 200 and "at most 2,000 are allowed" in shown.content.decode()
