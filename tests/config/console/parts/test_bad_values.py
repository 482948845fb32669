"""No address of the console, however malformed, is answered with a server error."""

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from django.contrib import admin as django_admin
from django.db import transaction
from django.test import Client
from django.urls import NoReverseMatch, reverse

from tests.support.console import list_of, make_one_of_each, page_of, unwritten
from tests.support.examples import some_cases

pytestmark = [pytest.mark.sampled, pytest.mark.django_db]
PANELS = list(django_admin.site._registry.values())
IDS = ("x\0y", "9" * 30)
VALUES = ("\0", "9" * 5000)
TIMES = (*VALUES, "0001-01-01T00:00", "9999-12-31T23:59:59Z")
ASKED = {
    "/admin/coming/": ("view", "kind", "agent", "span", "month", "start", "q"),
    "/admin/triggers/schedule/why/": ("q", "at"),
    "/admin/triggers/schedule/preview/": ("when", "start", "end", "zone", "active_hours", "jitter"),
}


@pytest.fixture
def client(admin: Client) -> Client:
    admin.raise_request_exception = False
    return admin


def statuses(client: Client, paths: list[str], method: str = "get") -> dict[str, int]:
    """Of the answers; each request in a transaction of its own, which one of the others may break."""
    found = {}
    for path in paths:
        with transaction.atomic():
            found[path] = getattr(client, method)(path).status_code
            transaction.set_rollback(True)
    return found


def errors(client: Client, paths: list[str], method: str = "get") -> dict[str, int]:
    """The answers that are server errors."""
    return {path: status for path, status in statuses(client, paths, method).items() if status >= 500}


@pytest.mark.chaos
@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.opts.model_name)
@pytest.mark.parametrize("method", ["get", "post"])
def test_no_id_breaks_a_page(client: Client, panel: Any, method: str) -> None:
    paths = []
    for name in {pattern.name for pattern in panel.get_urls() if pattern.name}:
        for id in IDS if method == "get" else IDS[:1]:
            try:
                # A placeholder first: reverse() itself refuses some of these.
                paths.append(reverse(f"admin:{name}", args=["1"]).replace("/1/", f"/{quote(id)}/"))
            except NoReverseMatch:
                break

    assert errors(client, paths, method) == {}


@pytest.mark.parametrize("panel", some_cases(PANELS), ids=lambda panel: panel.opts.model_name)
@pytest.mark.parametrize("value", [VALUES[0], pytest.param(VALUES[1], marks=pytest.mark.chaos)], ids=["nul", "long"])
def test_no_filter_breaks_a_list(client: Client, panel: Any, value: str) -> None:
    path = list_of(f"{panel.opts.app_label}_{panel.opts.model_name}")
    names = {"q", "p", "status__exact"}
    for one in panel.list_filter:
        field = one[0] if isinstance(one, tuple) else getattr(one, "parameter_name", one)
        names |= {str(field), f"{field}__exact", f"{field}__isempty"}

    paths = {name: f"{path}?{urlencode({name: value})}" for name in sorted(names)}
    with unwritten():
        found = statuses(client, list(paths.values()))
    assert {one: status for one, status in found.items() if status >= 500} == {}
    # Those that the list can show are written out together.
    shown = {name: value for name, one in paths.items() if found[one] == 200}
    assert errors(client, [f"{path}?{urlencode(shown)}"]) == {}


@pytest.mark.parametrize("path", ASKED)
def test_no_question_breaks_a_page(client: Client, path: str) -> None:
    queries = [{name: value} for name in ASKED[path] for value in TIMES]

    assert errors(client, [f"{path}?{urlencode(query)}" for query in queries]) == {}


def test_no_question_about_an_object_breaks_its_page(client: Client) -> None:
    rows = make_one_of_each(1)
    pages = {
        page_of("runs_run", rows["runs_run"]): ("only", "entries"),
        page_of("runs_run", rows["runs_run"]).replace("change", "entry"): ("key",),
        page_of("runs_run", rows["runs_run"]).replace("change", "fork_run"): ("step",),
        page_of("triggers_event", rows["triggers_event"]).replace("change", "shadow"): ("trigger", "run"),
        page_of("triggers_schedule", rows["triggers_schedule"]).replace("change", "why"): ("at", "zone"),
        page_of("triggers_exclusioncalendar", rows["triggers_exclusioncalendar"]): ("year",),
    }
    paths = [f"{path}?{urlencode({name: value})}" for path, names in pages.items() for name in names for value in TIMES]

    assert errors(client, paths) == {}


@pytest.mark.parametrize("noun", ["runs_run", "triggers_event", "triggers_trigger", "triggers_source"])
def test_no_choice_of_rows_breaks_a_list_action(client: Client, noun: str) -> None:
    panel: Any = next(one for one in PANELS if f"{one.opts.app_label}_{one.opts.model_name}" == noun)
    for action in panel.actions:
        for value in IDS:
            with transaction.atomic():
                form = {"action": action, "_selected_action": value, "index": "0"}
                assert client.post(list_of(noun), form).status_code < 500, (action, value)
                transaction.set_rollback(True)
