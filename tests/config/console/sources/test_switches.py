"""An operator makes a switch, sees how it does, and pauses it."""

import re
from datetime import timedelta
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.config.console.test_actions import press
from tests.support.console import list_of, page_of
from tests.support.switches import later, make_switch, work
from tests.support.triggers import make_event
from triggers.models import Source, Switch

ADD = "/admin/triggers/source/add/"
HOUR = timedelta(hours=1)


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


def state_of(admin: Client, slug: str = "orders") -> str:
    """The state in the list."""
    row = text_of(admin.get(list_of("triggers_switch"), {"q": slug}))
    [state] = re.findall(r"\b(up|late|down|never seen|paused)\b(?=\s*</)", row[row.index("result_list") :])
    return str(state)


def state_of_source(admin: Client, slug: str = "orders") -> str:
    """The state in the list of sources."""
    table = text_of(admin.get(list_of("triggers_source"), {"q": slug})).split("result_list")[1].split("</table>")[0]
    [state] = re.findall(r"\b(enabled|disabled|up|late|down|never seen)\b(?=\s*</)", table)
    return str(state)


def notice_of(admin: Client, source: Source) -> list[str]:
    """The same fact on the page of the switch and of its source."""
    pages = (page_of("triggers_switch", Switch(pk=source.pk)), page_of("triggers_source", source))
    return [text_of(admin.get(page)) for page in pages]


def test_the_address_of_a_new_dead_mans_switch_is_shown_once_with_its_token(admin: Client, settings: Any) -> None:
    settings.WAKEFUL_URL = "https://wakeful.example.com"
    form = {"choice": "ping", "slug": "backup", "enabled": "on", "ping__every": "1d", "ping__grace": "1h"}

    shown = text_of(admin.post(ADD, form))

    [address] = re.findall(r"https://wakeful\.example\.com(/ping/backup/wkf_[-\w]+)", shown)
    assert Client().get(address).status_code == 200
    assert address not in text_of(admin.get(page_of("triggers_source", Source.objects.get(slug="backup"))))


def test_a_wrong_setting_is_reported_at_its_field(admin: Client) -> None:
    form = {"choice": "absence", "slug": "orders", "absence__types": "order.*", "absence__within": "soon"}

    assert "is not a duration" in text_of(admin.post(ADD, form))
    assert not Source.objects.filter(slug="orders").exists()


def test_both_lists_and_both_pages_show_the_state_of_a_switch(admin: Client) -> None:
    source = make_switch(grace="30m")
    assert state_of(admin) == state_of_source(admin) == "never seen"
    make_event()
    work()
    assert state_of(admin) == state_of_source(admin) == "up"

    later(1.2 * HOUR)
    assert state_of(admin) == state_of_source(admin) == "late"
    assert all("unless the event comes before" in page for page in notice_of(admin, source))

    later(0.5 * HOUR)
    work()
    assert state_of(admin) == state_of_source(admin) == "down"
    assert all("it did not come in time" in page for page in notice_of(admin, source))
    assert "absence.opened" in notice_of(admin, source)[0]


def test_a_switch_is_paused_and_resumed(admin: Client) -> None:
    source = make_switch()

    press(admin, "triggers_switch", source, "pause")
    assert state_of(admin) == "paused"
    press(admin, "triggers_switch", source, "resume")

    assert Source.objects.get(pk=source.pk).enabled
    assert state_of(admin) == "never seen"


def test_the_keys_that_are_down_stand_first(admin: Client) -> None:
    source = make_switch(types="paid", of_types="placed", key="event.data.order")
    for order in ("first", "second"):
        make_event(type="placed", data={"order": order})
        work()
        later(0.6 * HOUR)
    work()

    shown = notice_of(admin, source)[0]

    assert "Down for at least one key" in shown
    assert shown.index("first") < shown.index("second")


def test_the_list_needs_no_more_queries_for_more_switches(admin: Client) -> None:
    queries = []
    for slug in ("first", "second", "third"):
        make_switch(slug, grace="30m")
        with CaptureQueriesContext(connection) as seen:
            admin.get(list_of("triggers_switch"))
        queries.append(len(seen))
    assert queries[2] == queries[1]
