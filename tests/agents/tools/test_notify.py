"""The tool notify."""

import pytest

from agents.tools import toolbox
from tests.support.tools import call

pytestmark = pytest.mark.django_db


def test_the_tool_notifies_with_its_step_in_a_tainted_run_too() -> None:
    called = call(
        "notify", {"text": "The disk is full", "urgency": "high", "topic": "disk", "to": ["ops"]}, is_tainted=True
    )

    [notice] = called.done.notifications
    assert (notice.text, notice.urgency, notice.topic, notice.to) == ("The disk is full", "high", "disk", ("ops",))
    assert notice.link == ""  # the page of the run, which shows its taint


def test_the_model_cannot_give_it_a_link() -> None:
    assert "link" not in toolbox.get("notify").function_schema.json_schema["properties"]


def test_an_empty_recipient_is_reported_to_the_model() -> None:
    called = call("notify", {"text": "Hello", "to": [""]})

    assert not called.done.notifications
    assert "recipients" in called.results[0]
