from typing import Any

import pytest

from agents import Permanent
from agents.library.reminder import reminder
from agents.testing import run_agent

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("data", "input", "text"),
    [
        ({"schedule": "renew-certificate", "nominal": "…"}, {"text": "Renew the certificate"}, "Renew the certificate"),
        ({"schedule": "renew-certificate", "nominal": "…"}, None, "renew-certificate"),
        ({"text": "Call Ada"}, None, "Call Ada"),
        ({"schedule": "reminder 1", "data": {"text": "Call Ada"}}, None, "Call Ada"),
        ({"schedule": "nightly", "data": [1]}, None, "nightly"),
    ],
)
def test_a_reminder_notifies_its_text_or_else_its_schedules_name(data: Any, input: Any, text: str) -> None:
    done = run_agent(reminder, data=data, input=input)

    assert [notice.text for notice in done.notifications] == [f"Reminder: {text}"]
    assert done.result == {"reminded": text}


@pytest.mark.parametrize("data", [None, "Call Ada", {}, {"text": ""}])
def test_a_reminder_of_nothing_shows_how_to_give_it_a_text(data: Any) -> None:
    with pytest.raises(Permanent, match="input"):
        run_agent(reminder, data=data)
