import copy
import json
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models import Model
from pydantic_ai.models.test import TestModel

from agents import Permanent
from agents.library.github_issue_triage import alike, github_issue_triage, labels_for, priority_of, read_issue
from agents.library.models import IssueTriage
from agents.testing import AgentResult, assert_replays, run_agent
from triggers.sources.webhooks.schemes.github import OPENED

FIXTURE = Path(__file__).parents[2] / "triggers" / "fixtures" / "github" / "issues.opened.json"
RECORDED = json.loads(FIXTURE.read_text())


@pytest.mark.django_db
def test_a_recorded_issue_gets_labels_and_a_priority_and_is_passed_on() -> None:
    done = triage()

    assert done.result == {
        "repository": "lantern-works/tidewatch",
        "number": 418,
        "title": RECORDED["issue"]["title"],
        "url": "https://github.com/lantern-works/tidewatch/issues/418",
        "labels": ["crash", "bug"],
        "priority": "high",
        "duplicate_of": None,
    }
    [event] = done.emitted
    assert (event.type, event.subject, event.data) == ("issue.triaged", "lantern-works/tidewatch#418", done.result)
    assert IssueTriage.objects.get(repository="lantern-works/tidewatch", number=418).labels == ["crash", "bug"]


@pytest.mark.django_db
def test_an_issue_that_comes_again_replaces_its_verdict() -> None:
    triage()
    triage(title="How do I empty the tide table?", body=None)

    assert IssueTriage.objects.get().priority == "low"


@pytest.mark.django_db
def test_labels_that_the_issue_has_are_not_suggested_but_count_for_its_priority() -> None:
    done = triage(labels=[{"name": "crash"}])

    assert (done.result["labels"], done.result["priority"]) == (["bug"], "high")


@pytest.mark.django_db
def test_an_issue_like_an_earlier_one_of_its_repository_is_marked_as_its_duplicate() -> None:
    triage(number=400, title="Dark theme please")
    triage(number=401, title="Crash on startup when the tide table is empty")
    triage(number=500, title="Crash on startup when the tide table is empty")

    done = triage(number=418, title="Crash at startup with an empty tide table")

    assert done.result["duplicate_of"] == 401


@pytest.mark.django_db
def test_a_like_issue_of_another_repository_is_no_duplicate() -> None:
    IssueTriage.objects.create(repository="somebody/else", number=1, title=RECORDED["issue"]["title"])

    assert triage().result["duplicate_of"] is None


@pytest.mark.django_db
@pytest.mark.parametrize("payload", [None, [], {}, {"issue": {}}, {"zen": "Keep it logically awesome."}])
def test_a_payload_without_an_issue_fails_for_good(payload: Any) -> None:
    with pytest.raises(Permanent, match="not the payload of a GitHub"):
        run_agent(github_issue_triage, data=payload)


@pytest.mark.parametrize(
    ("text", "labels", "priority"),
    [
        ("XSS in the station name", ["security"], "urgent"),
        ("Update deletes all readings", ["data-loss"], "urgent"),
        ("Segfault after an hour", ["crash", "bug"], "high"),
        ("Export does not work", ["bug"], "normal"),
        ("The map is slow", ["performance"], "normal"),
        ("Please add support for GPX", ["feature"], "low"),
        ("Typo in the README", ["docs"], "low"),
        ("How do I change the zone?", ["question"], "low"),
        ("Tides of the Baltic", [], "normal"),
    ],
)
def test_rules_derive_the_labels_and_the_priority_of_an_issue(text: str, labels: list[str], priority: str) -> None:
    assert labels_for(text) == labels
    assert priority_of(labels) == priority


@pytest.mark.django_db
def test_a_model_is_called_only_where_no_rule_matches() -> None:
    model = TestModel(custom_output_args={"labels": ["feature"], "priority": "low"})

    by_rules, by_model = triage(model=model), triage(model=model, title="Tides of the Baltic", body="Thanks!")

    assert "llm issue-triager#1" not in by_rules.journal.keys
    assert "llm issue-triager#1" in by_model.journal.keys
    assert (by_model.result["labels"], by_model.result["priority"]) == (["feature"], "low")
    assert_replays(by_model)


@pytest.mark.django_db
def test_the_built_in_model_gives_a_verdict_without_a_key(settings: Any) -> None:
    settings.WAKEFUL_MODEL = "builtin"

    assert triage(title="Tides of the Baltic", body="Thanks!").result["labels"] == ["security"]


def test_titles_are_alike_by_the_words_they_share() -> None:
    assert alike("Crash on start-up", "crash at START-up!") == 1
    assert alike("Crash on start-up", "Dark theme") == 0
    assert alike("", "") == 0


def triage(*, model: Model | None = None, **changes: Any) -> AgentResult:
    payload = copy.deepcopy(RECORDED)
    payload["issue"].update(changes)
    return run_agent(github_issue_triage, data=payload, type="issues.opened", source="github", model=model)


def test_the_test_event_of_a_source_is_an_issue_that_needs_no_model() -> None:
    issue = read_issue(OPENED)

    assert labels_for(f"{issue.title}\n{issue.body}") == ["question"]
