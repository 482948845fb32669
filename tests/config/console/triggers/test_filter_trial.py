"""Try the filter: for those who may see events, with expressions of their own only for those who may change the trigger."""

from typing import Any

import pytest
from django.test import Client

from tests.config.console.conftest import LogIn
from tests.support.triggers import make_event, make_trigger
from triggers.matching.expressions import cel
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


def test_a_filter_trial_requires_permission_to_view_events(log_in: LogIn) -> None:
    trigger = make_trigger()

    assert log_in("triggers.view_trigger").get(path_of(trigger)).status_code == 403
    assert log_in("triggers.change_trigger", name="bob").get(path_of(trigger)).status_code == 403


def test_no_expression_is_evaluated_in_the_web_process(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("evaluated here")

    monkeypatch.setattr(cel, "value", never)
    trigger = make_trigger(filter="event.data.n == 1")
    event = make_event(data={"n": 1})

    shown = admin.post(path_of(trigger), {**FORM, "filter": "event.data.n == 1"}).content.decode()
    assert "1 of 1 match" in shown
    assert "greeter" in admin.get(f"/admin/triggers/event/{event.pk}/shadow/").content.decode()


def test_an_expression_that_would_take_hours_ends_with_the_name_of_its_limit(admin: Client, settings: Any) -> None:
    settings.WAKEFUL_MATCH_TIME = settings.WAKEFUL_MATCH_TIME / 4
    trigger = make_trigger()
    make_event(data={"text": "a" * 500_000})
    many = ",".join("1" * 90)
    hours = f"[{many}].all(x, [{many}].all(y, !event.data.text.matches('(a|aa)+c')))"

    assert "WAKEFUL_MATCH_TIME" in admin.post(path_of(trigger), {**FORM, "filter": hours}).content.decode()


def test_an_expression_over_a_limit_is_an_error_of_its_field(admin: Client) -> None:
    shown = admin.post(path_of(make_trigger()), {**FORM, "filter": "1+" * 6000 + "1==1"})

    assert shown.status_code == 200 and "at most 2,000 are allowed" in shown.content.decode()


def test_a_wrong_expression_is_refused_with_its_place_marked(admin: Client) -> None:
    form = {**FORM, "filter": "event.data.n = 1", "input": '{"id": "event.data.id)"}'}

    shown = admin.post(path_of(make_trigger()), form).content.decode()

    assert "line 1, column 14, at &#x27;=&#x27;: use == to compare" in shown
    assert '<code class="fault">event.data.n <mark>=</mark> 1</code>' in shown
    assert "id: line 1, column 14" in shown and "event.data.id<mark>)</mark></code>" in shown


def test_a_miss_is_explained_and_other_types_are_named(admin: Client) -> None:
    make_event(data={"n": 1, "password": "hunter22"})
    make_event(type="order.placed")
    form = {**FORM, "filter": 'event.data.n > 2 && event.data.password == "x"'}

    shown = admin.post("/admin/triggers/trigger/try/", form).content.decode()

    assert "0 of 1 match" in shown and "event.data.n &gt; 2 is false" in shown
    assert "<code>event.data.n</code> = 1" in shown and "hunter22" not in shown
    assert "<code>order.placed</code> (1)" in shown


def test_fields_of_recent_events_are_offered_to_those_who_may_see_events_and_change_triggers(log_in: LogIn) -> None:
    make_event(data={"n": 1})
    paths = ("/admin/triggers/trigger/seen/", "/admin/triggers/trigger/try/")
    editor = log_in("triggers.change_trigger", "triggers.view_event")
    shown = editor.post(paths[0], FORM).content.decode()

    assert 'data-filter="event.data.n == 1"' in shown and "1 of 1" in shown
    for name, permission in (("bob", "triggers.change_trigger"), ("eve", "triggers.view_event")):
        client = log_in(permission, name=name)
        assert [client.post(path, FORM).status_code for path in paths] == [403, 403]
        assert "data-seen" not in client.get("/admin/triggers/trigger/add/").content.decode()
