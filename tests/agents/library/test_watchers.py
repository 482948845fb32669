"""Library agents that watch the installation: what they say, and that they are silent otherwise."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic_ai.models.test import TestModel

from agents import Fire, Quiet
from agents.agent import Agent
from agents.kernel import installation
from agents.kernel.installation import Backlog, FailedRuns, Finished, OpenApproval, Trouble
from agents.library.anomaly_explainer import anomalies, anomaly_explainer
from agents.library.approval_chaser import approval_chaser, reminders_by
from agents.library.backlog_heartbeat import backlog_heartbeat, told
from agents.library.daily_digest import daily_digest
from agents.testing import AgentResult, ask_gate, run_agent

pytestmark = pytest.mark.django_db

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)


class House:
    """An installation whose facts a test sets."""

    def __init__(self) -> None:
        self.queues: list[Backlog] = []
        self.approvals: list[OpenApproval] = []
        self.failed: list[FailedRuns] = []
        self.wrong: list[Trouble] = []
        self.hours: dict[datetime, list[Finished]] = {}

    def backlog(self) -> list[Backlog]:
        return self.queues

    def open_approvals(self, most: int = 100) -> list[OpenApproval]:
        return self.approvals[:most]

    def failed_runs(self, within: timedelta, most: int = 20) -> list[FailedRuns]:
        return self.failed[:most]

    def troubles(self, most: int = 50) -> list[Trouble]:
        return self.wrong[:most]

    def finished(self, since: datetime, until: datetime) -> list[Finished]:
        return self.hours.get(since, [])


@pytest.fixture
def house() -> Iterator[House]:
    before, house = installation._connection.answers, House()
    installation.connect(house)
    yield house
    assert before
    installation.connect(before)


def wake(agent: Agent, last: Any, **options: Any) -> tuple[AgentResult | None, Any]:
    """What the run does if the gate fires, and the state that the next gate sees."""
    answer = ask_gate(agent, last=last)
    if isinstance(answer, Quiet):
        return None, last
    return run_agent(agent, fired=answer, **options), last if answer.state is None else answer.state


def notified(agent: Agent, last: Any = None) -> tuple[list[str], Any]:
    done, state = wake(agent, last)
    return [notice.text for notice in done.notifications] if done else [], state


# backlog-heartbeat


def waiting(runs: int, minutes: float, **other: Any) -> Backlog:
    now = {"queue": "default", "running": 2, "children": 2, "is_paused": False, **other}
    return Backlog(waiting=runs, oldest=timedelta(minutes=minutes), **now)


def test_a_backlog_is_reported_when_it_begins_when_it_gets_much_worse_and_when_it_is_over(house: House) -> None:
    state, notifications = None, []
    for runs, minutes in [(3, 1), (10, 6), (12, 7), (40, 9), (30, 3), (0, 0), (0, 0)]:
        house.queues = [waiting(runs, minutes)]
        texts, state = notified(backlog_heartbeat, state)
        notifications.append(texts)

    [begin], [worse], [over] = filter(None, notifications)
    assert [bool(texts) for texts in notifications] == [False, True, False, True, False, True, False]
    assert begin == "10 runs wait in queue default, the longest for 6 min; 2 are running, and 2 processes serve it."
    assert worse.startswith("40 runs wait")
    assert over == "No run waits long in queue default any more."
    assert told(waiting(1, 6, running=1, children=1)).endswith("1 is running, and 1 process serves it.")


def test_a_paused_queue_is_no_backlog(house: House) -> None:
    house.queues = [waiting(500, 600, is_paused=True)]

    assert notified(backlog_heartbeat) == ([], None)


# daily-digest


def test_a_day_without_anything_to_do_has_no_digest(house: House) -> None:
    assert isinstance(ask_gate(daily_digest), Quiet)


def test_a_digest_names_what_needs_a_person(house: House) -> None:
    house.failed = [
        FailedRuns(
            agent="intake", cause="…", error="KeyError:\n 'total'", count=12, first_at=NINE, last_at=NINE, runs=[]
        )
    ]
    house.approvals = [question(NINE)]
    house.wrong = [Trouble(name="lag", text="A run waits for a worker.", remedy="", is_bad=True)] * 12

    [text], _ = notified(daily_digest)

    assert "Failed in the last day:\n- intake: KeyError: 'total' (12 ×)" in text
    assert "Waiting for an answer:\n- clerk: Refund? (since 2026-11-20 09:00 UTC)" in text
    assert text.count("A run waits for a worker.") == 10
    assert text.endswith("- and 2 more")


# approval-chaser


def question(asked_at: datetime, until: datetime | None = None, id: UUID | None = None) -> OpenApproval:
    return OpenApproval(
        id=id or uuid4(),
        agent="clerk",
        question="Refund?",
        asked_at=asked_at,
        until=until,
        page="https://example.com/a",
    )


@pytest.mark.parametrize(("hours", "reminders"), [(0, 0), (3.9, 0), (4, 1), (27.9, 1), (28, 2), (70.9, 3), (71, 4)])
def test_a_question_is_repeated_after_four_hours_then_daily_and_before_its_end(hours: float, reminders: int) -> None:
    assert reminders_by(question(NINE, NINE + timedelta(hours=72)), NINE + timedelta(hours=hours)) == reminders


def test_a_stale_question_is_reported_once_with_its_page(house: House) -> None:
    now = datetime.now(UTC)
    house.approvals = [
        question(now - timedelta(hours=1)),
        question(now - timedelta(hours=5), now + timedelta(hours=9, seconds=20)),
    ]

    done, state = wake(approval_chaser, None)

    assert done
    [notice] = done.notifications
    assert notice.text == "clerk has waited for an answer for 5 h: Refund? It expires in 9 h."
    assert (notice.link, notice.urgency) == ("https://example.com/a", "normal")
    assert notified(approval_chaser, state)[0] == []


def test_the_last_call_is_urgent(house: House) -> None:
    now = datetime.now(UTC)
    house.approvals = [question(now - timedelta(hours=23, minutes=30), now + timedelta(minutes=30))]

    done, _ = wake(approval_chaser, {str(house.approvals[0].id): 1})

    assert done
    assert [notice.urgency for notice in done.notifications] == ["high"]


# anomaly-explainer


def day(runs: int, failed: int = 0) -> list[Finished]:
    return [Finished(agent="intake", runs=runs, failed=failed)]


@pytest.mark.parametrize(
    ("now", "before", "found"),
    [
        (day(100), [day(100), day(96), day(104)], []),
        (day(100, failed=20), [day(100), day(100, 1), day(100)], ["failed"]),
        (day(300), [day(100)] * 7, ["runs"]),
        ([], [day(100)] * 7, ["runs"]),
        ([], [day(4)] * 7, []),
        (day(300), [day(100), day(100), [], []], []),  # too young to say
    ],
)
def test_an_hour_is_unusual_by_more_than_chance(
    now: list[Finished], before: list[list[Finished]], found: list[str]
) -> None:
    assert [one["measure"] for one in anomalies(now, before)] == found


def an_unusual_hour(house: House) -> None:
    this = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    house.hours = {this - timedelta(days=n): day(100) for n in range(1, 8)}
    house.hours[this] = day(100, failed=60)


def test_an_unusual_hour_is_explained_and_notified_once(house: House) -> None:
    an_unusual_hour(house)

    done, state = wake(anomaly_explainer, None, model=TestModel(custom_output_args={"text": "The shop is away."}))

    assert done
    [notice] = done.notifications
    assert notice.text == (
        "intake failed 60 times in the last hour; usual at this time of day: 0.\nLikely reason: The shop is away."
    )
    assert isinstance(ask_gate(anomaly_explainer, last=state), Quiet)


def test_without_a_model_the_facts_are_reported(house: House, settings: Any) -> None:
    an_unusual_hour(house)
    settings.WAKEFUL_MODEL = ""

    [text], _ = notified(anomaly_explainer)

    assert text == "intake failed 60 times in the last hour; usual at this time of day: 0."


def test_a_usual_hour_calls_no_model(house: House) -> None:
    assert isinstance(ask_gate(anomaly_explainer), Quiet)
    assert not isinstance(ask_gate(anomaly_explainer), Fire)
