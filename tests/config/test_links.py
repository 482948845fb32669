"""Links of notifications work from outside."""

from typing import Any

import pytest
from django.test import Client

from config.links import absolute
from config.secrets import secrets_of_address
from runs.actions.approve import decide
from runs.models import Alarm
from runs.network.site import site
from tests.support.journals import make_approval
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def test_a_link_of_an_agent_stays_as_it_is() -> None:
    assert absolute("https://example.com/d?x=a:b") == "https://example.com/d?x=a:b"


def test_runs_and_alarms_are_pages_of_this_site(settings: Any) -> None:
    settings.WAKEFUL_URL = "https://wakeful.example.com/"
    run, alarm = make_run(), Alarm.objects.create(name="a", severity="bad", text="t")

    assert absolute(f"run:{run.pk}") == f"https://wakeful.example.com/admin/runs/run/{run.pk}/change/"
    assert absolute(f"alarm:{alarm.pk}") == f"https://wakeful.example.com/admin/runs/alarm/{alarm.pk}/change/"


def test_the_link_of_an_open_approval_decides_it_and_later_only_shows_it(client: Client, settings: Any) -> None:
    settings.WAKEFUL_URL = "https://wakeful.example.com"
    approval = make_approval(make_run(status="waiting"), status="open")

    link = absolute(f"approval:{approval.pk}")
    assert client.get(link.removeprefix("https://wakeful.example.com")).status_code == 200
    decide(approval.pk, decision="approve", by="ada")

    assert "/admin/" not in link
    assert absolute(f"approval:{approval.pk}").endswith(f"/admin/runs/approval/{approval.pk}/change/")


@pytest.mark.parametrize(
    ("values", "address"),
    [
        ({"ALLOWED_HOSTS": ["127.0.0.1", "localhost"], "WAKEFUL_PORT": 8123}, "http://127.0.0.1:8123"),
        ({"ALLOWED_HOSTS": ["127.0.0.1", "w.example.com"], "WAKEFUL_HTTPS": True}, "https://w.example.com"),
        ({"ALLOWED_HOSTS": [".example.com", "*"], "WAKEFUL_PORT": 8123}, "http://127.0.0.1:8123"),
    ],
)
def test_without_a_setting_the_address_of_the_site_follows_from_others(
    settings: Any, values: dict[str, Any], address: str
) -> None:
    settings.WAKEFUL_URL = ""
    for name, value in values.items():
        setattr(settings, name, value)

    assert site() == address


@pytest.mark.parametrize(
    ("address", "secrets"),
    [
        ("mailto:ops@example.com", set()),
        ("inbox:admin", set()),
        ("", set()),
        ("tgram://123:token/chat", {"tgram://123:token/chat", ""}),
        (
            "https://example.com/hook#whsec_x",
            {"https://example.com/hook#whsec_x", "https://example.com/hook", "whsec_x"},
        ),
    ],
)
def test_an_address_is_a_secret_unless_it_is_shown(address: str, secrets: set[str]) -> None:
    assert set(secrets_of_address(address)) == secrets
