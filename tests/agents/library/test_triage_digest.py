import pytest

from agents.library.triage_digest import triage_digest
from agents.testing import AgentResult, run_agent

pytestmark = pytest.mark.django_db


def test_the_digest_counts_by_label_and_priority_over_all_its_runs() -> None:
    triaged("high", "crash", "bug")
    triaged("low", "docs")

    digest = triaged("normal", "bug").result

    assert digest == {
        "issues": 3,
        "labels": {"crash": 1, "bug": 2, "docs": 1},
        "priorities": {"high": 1, "low": 1, "normal": 1},
    }


def test_people_are_notified_about_urgent_issues_only() -> None:
    assert not triaged("high", "crash").notifications

    [notice] = triaged("urgent", "security").notifications

    assert (notice.urgency, notice.text) == ("high", "Urgent issue tides/watch#7: XSS https://example.org/7")


def triaged(priority: str, *labels: str) -> AgentResult:
    data = {"title": "XSS", "url": "https://example.org/7", "priority": priority, "labels": list(labels)}
    return run_agent(triage_digest, data=data, type="issue.triaged", subject="tides/watch#7")
