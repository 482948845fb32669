"""`on.absence(...)` makes a switch together with its trigger."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from agents import AgentRun, agent, on, registry
from agents.exceptions import DeclarationError
from runs.models import Run
from tests.support.switches import later, timer, work
from tests.support.triggers import make_event
from triggers.declarations.sync import sync
from triggers.models import Source
from triggers.sources.kind import kinds
from triggers.sources.settings import InvalidSettings
from triggers.switches.switch import switch_of

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


def test_a_deadline_is_declared_and_expects_each_listed_key(unpaid: Any) -> None:
    unpaid(
        within=None, of=(), by="3 pm", since="noon", days="mon-fri", tz="Europe/Vienna", keys=["a", "b"], closed=True
    )
    sync()
    work()

    deadline = switch_of(uuid4(), "dunning", "absence", Source.objects.get(slug="dunning").settings)
    assert deadline.recurring and deadline.recurring.words == (
        "by 15:00 on Monday to Friday (Europe/Vienna), since 12:00"
    )
    assert {timer("dunning", key).state for key in "ab"} == {"waiting"}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"by": "15 o'clock"}, "by"),
        ({"by": "15:00", "since": "later"}, "since"),
        ({"by": "15:00", "days": "someday"}, "days"),
        ({"by": "15:00", "tz": "Vienna"}, "active_zone"),
        ({"by": "15:00", "active_hours": "mon-fri 09:00-17:00"}, "active_hours"),
        ({"by": "15:00", "key": "event.subject"}, "keys"),
        ({"by": "15:00", "keys": ["main"]}, "key"),
        ({"by": "15:00", "of": "placed", "since": "noon"}, "since"),
        ({"by": "15:00", "of": "placed", "key": "event.subject", "keys": ["main"]}, "keys"),
        ({"within": "1h", "since": "noon"}, "since"),
        ({"within": "1h", "of_key": "event.subject"}, "of_key"),
    ],
)
def test_settings_that_make_no_case_are_refused_at_their_field(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        kinds()["absence"].check(on.absence("paid", **given).settings)
    assert set(refused.value.errors) == {field}


@pytest.mark.parametrize(
    "given", [{}, {"within": "1h", "by": "15:00"}, {"by": "15:00", "keys": "main"}, {"by": "15:00", "keys": ["a,b"]}]
)
def test_a_declaration_needs_one_time_and_a_list_of_keys(given: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        on.absence("paid", **given)
