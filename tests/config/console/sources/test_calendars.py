"""An operator makes a calendar: the form asks what is to wake, and keeps the rest folded."""

import pytest
from django.test import Client

from tests.support.console import page_of
from triggers.models import Source

ADD = "/admin/triggers/source/add/"


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("ics", {"url": "https://example.org/a.ics", "secret_header": "Authorization", "secret_prefix": "Bearer "}),
        ("caldav", {"url": "https://example.org/ada/office/", "user": "ada"}),
        ("calendar_of_google", {"connection": "work"}),
        ("calendar_of_microsoft", {"connection": "work"}),
    ],
)
def test_a_calendar_is_made_by_its_case(admin: Client, kind: str, where: dict[str, str]) -> None:
    page = admin.get(ADD, {"choice": kind})
    assert "Before each event starts" in page.content.decode()
    form = {"choice": kind, "slug": "meetings", "enabled": "on", "case": "starts"}
    form |= {f"{kind}__{name}": value for name, value in where.items()}
    form |= {f"{kind}__{name}": value for name, value in {"before": "30m", "every": "1m", "late": "5m"}.items()}

    answer = admin.post(ADD, form)

    assert answer.status_code == 302, answer.context["form"].errors
    made = Source.objects.get(slug="meetings")
    assert made.kind == kind and not made.trusted
    assert made.settings["events"] == "starts" and made.settings["before"] == "30m"
    shown = admin.get(page_of("triggers_source", made)).content.decode()
    assert "Before the start" in shown and "Begin with" not in shown  # which is of another case


@pytest.mark.parametrize("kind", ["gmail", "microsoft_mail"])
def test_mail_by_a_connection_needs_no_more_than_its_name(admin: Client, kind: str) -> None:
    form = {"choice": kind, "slug": "inbox", "enabled": "on", f"{kind}__connection": "mail"}
    form |= {f"{kind}__every": "1m", f"{kind}__begin_with": "new", f"{kind}__folder": "inbox"}

    answer = admin.post(ADD, form)

    assert answer.status_code == 302, answer.context["form"].errors
    assert Source.objects.get(slug="inbox").settings["connection"] == "mail"
