"""The tool emit."""

import pytest

from agents.testing import Unanswered
from tests.support.tools import call

pytestmark = pytest.mark.django_db


def test_the_tool_emits_its_event_with_its_step() -> None:
    called = call("emit", {"type": "invoice.checked", "data": {"number": 7}, "subject": "7"})

    [event] = called.done.emitted
    assert (event.type, event.data, event.subject) == ("invoice.checked", {"number": 7}, "7")
    assert called.results == ["The event invoice.checked is emitted."]


def test_a_reserved_type_is_reported_to_the_model_and_emits_nothing() -> None:
    called = call("emit", {"type": "run.wakeup"})

    assert not called.done.emitted
    assert "reserved" in called.results[0]


def test_emit_in_a_tainted_run_needs_approval() -> None:
    with pytest.raises(Unanswered, match="wants to call the tool emit"):
        call("emit", {"type": "refund.requested"}, is_tainted=True)
