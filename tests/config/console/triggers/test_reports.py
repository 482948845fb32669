"""Reports in the console: declared for a trigger, and asked for when a run is started."""

import json
from typing import Any

import pytest
from django.test import Client

from runs.models import Recipient
from tests.config.console.conftest import LogIn
from tests.config.console.test_actions import press
from tests.config.console.test_forms import NEW_TRIGGER, errors_of
from tests.support.console import page_of
from tests.support.notifying import make_recipient
from tests.support.runs import make_run
from tests.support.triggers import make_heartbeat, make_trigger
from triggers.models import Event, Trigger


def edit(client: Client, trigger: Trigger, lines: str) -> Any:
    return client.post(
        page_of("triggers_trigger", trigger).replace("change", "edit"), {**NEW_TRIGGER, "reports": lines}
    )


def asked() -> Any:
    return json.loads((Event.objects.get(type="manual.fired").headers or {})["reports"])


def test_reports_are_lines_of_the_form_and_a_part_of_the_policy(admin: Client) -> None:
    make_recipient("ops")
    trigger = make_trigger()

    edit(admin, trigger, "failure: notify ops\n\nend: event")

    trigger.refresh_from_db()
    assert trigger.policy["reports"] == [{"on": "failure", "notify": ["ops"]}, {"on": "end", "event": True}]
    shown = admin.get(page_of("triggers_trigger", trigger).replace("change", "edit")).content.decode()
    assert "failure: notify ops\nend: event" in shown

    edit(admin, trigger, "")
    trigger.refresh_from_db()
    assert "reports" not in trigger.policy


def test_pages_show_reports_also_those_of_a_newer_version(admin: Client) -> None:
    policy = {"reports": [{"on": "failure", "notify": ["ops"]}, {"on": "end", "fax": True}]}
    trigger, run = make_trigger(policy=policy), make_run(policy=policy)

    for page in (page_of("triggers_trigger", trigger), page_of("runs_run", run)):
        shown = admin.get(page).content.decode()
        assert "failure: notify ops · {&quot;on&quot;: &quot;end&quot;, &quot;fax&quot;: true}" in shown


@pytest.mark.parametrize(
    ("line", "why"),
    [("failure: notify missing", "no recipient is named"), ("never: event", "use end, success, failure")],
)
def test_a_wrong_report_is_refused_at_its_field(admin: Client, line: str, why: str) -> None:
    assert why in str(errors_of(edit(admin, make_trigger(), line))["reports"])


def test_a_person_who_fires_a_trigger_gets_the_report_in_an_inbox_that_is_opened(log_in: LogIn) -> None:
    client = log_in("triggers.view_trigger", "triggers.fire_trigger")
    trigger = make_trigger()

    press(client, "triggers_trigger", trigger, "fire", data="{}", report="on", report_to="")

    inbox = Recipient.objects.get()
    assert asked() == [{"on": "end", "notify": [inbox.name], "by": Event.objects.get().ce_source}]
    assert inbox.address == f"inbox:{Event.objects.get().ce_source.removeprefix('admin:')}"
    assert not inbox.gets_all  # the person may see reports of own runs, not what others are told


def test_a_person_who_runs_a_schedule_now_chooses_a_recipient(admin: Client) -> None:
    make_recipient("ops")

    press(admin, "triggers_schedule", make_heartbeat(), "fire", report="on", report_to="ops")

    assert [report["notify"] for report in asked()] == [["ops"]]


def test_without_the_box_there_is_no_report(admin: Client) -> None:
    press(admin, "triggers_trigger", make_trigger(), "fire", data="{}", report_to="")

    assert Event.objects.get().headers == {}
