"""`on.absence(...)` makes a switch together with its trigger."""

from datetime import timedelta
from typing import Any

import pytest

from agents import AgentRun, agent, on, registry
from agents.exceptions import DeclarationError
from runs.models import Run
from tests.support.switches import later, timer, work
from tests.support.triggers import make_event
from triggers.declarations.sync import sync
from triggers.models import Source

pytestmark = pytest.mark.django_db


@pytest.fixture
def unpaid(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Declares the only agent; each call replaces it."""

    def declare(**given: Any) -> None:
        monkeypatch.setattr(registry, "_agents", {})
        wanted: dict[str, Any] = {"within": "30m", "of": "placed", "key": "event.data.order", **given}

        @agent("dunning", triggers=[on.absence("paid", **wanted)])
        def dunning(run: AgentRun) -> None: ...

    return declare


def test_an_agent_is_woken_by_the_absence_that_it_declares(unpaid: Any) -> None:
    unpaid()
    sync()
    make_event(type="placed", data={"order": 7})
    work()
    later(timedelta(minutes=30))

    work()

    assert timer("dunning", "7").state == "open"
    assert Run.objects.get().trigger == "dunning"


def test_another_time_in_the_code_moves_what_is_due(unpaid: Any) -> None:
    unpaid()
    sync()
    make_event(type="placed", data={"order": 7})
    work()
    first = timer("dunning", "7").due_at

    unpaid(within=timedelta(hours=2))
    sync()
    work()

    assert first and timer("dunning", "7").due_at == first + timedelta(minutes=90)


def test_a_key_that_does_not_compile_is_refused_before_any_write(unpaid: Any) -> None:
    unpaid(key="event.dat.order")

    with pytest.raises(DeclarationError, match="key"):
        sync()
    assert not Source.objects.filter(slug="dunning").exists()
