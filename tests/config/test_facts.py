"""The facts that agents may ask for, read from real rows."""

from datetime import UTC, datetime, timedelta

import pytest

from agents.exceptions import Permanent
from agents.kernel.installation import facts
from tests.support.durable import Lab, lab

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)


def test_an_open_question_is_a_fact_with_the_address_of_its_page(lab: Lab) -> None:
    run = lab.run(lambda run: bool(run.ask_approval("Refund?", expires="1d")))

    [approval] = facts.open_approvals()

    assert (approval.agent, approval.question) == (run.agent, "Refund?")
    assert approval.page.endswith(f"/admin/runs/approval/{approval.id}/change/")
    assert approval.until
    assert timedelta(days=1) <= approval.until - approval.asked_at < timedelta(days=1, minutes=1)


def test_runs_are_counted_by_agent_in_a_span_of_time(lab: Lab) -> None:
    def fail(run: object) -> None:
        raise Permanent("no")

    lab.run(lambda run: None)
    run = lab.run(fail)
    now = datetime.now(UTC)

    [counted] = facts.finished(now - timedelta(hours=1), now + timedelta(hours=1))
    assert (counted.agent, counted.runs, counted.failed) == (run.agent, 2, 1)
    assert facts.finished(now - timedelta(hours=2), now - timedelta(hours=1)) == []


def test_each_queue_has_a_backlog_and_each_trouble_a_remedy(lab: Lab) -> None:
    assert "default" in {one.queue for one in facts.backlog()}
    assert all(trouble.text and trouble.remedy for trouble in facts.troubles())
