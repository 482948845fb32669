"""GET /api/v1/overnight/: what agents did overnight."""

from datetime import timedelta

import pytest
from django.utils import timezone

from tests.support.api import Api
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def test_overnight_has_figures_and_a_timeline_by_agent() -> None:
    now = timezone.now()
    make_run(status="failed", agent="clerk", started_at=now)
    span = {"from": (now - 12 * HOUR).isoformat(), "to": (now + 12 * HOUR).isoformat()}

    answer = Api().get("overnight/", **span)

    assert answer.status == 200
    [clerk] = answer.body["agents"]
    assert (clerk["agent"], clerk["woken"], clerk["failed"], clerk["usd"]) == ("clerk", 1, 1, "0")
    [slot] = clerk["timeline"]
    assert (slot["runs"], slot["failed"], 23 <= slot["slot"] <= 24) == (1, 1, True)
    assert (answer.body["total"]["runs"], answer.body["cut"]) == (1, [])


def test_the_usual_span_is_since_yesterday_evening() -> None:
    body = Api().get("overnight/", to="2026-11-23T09:00").body

    assert (body["start"], body["end"]) == ("2026-11-22T18:00:00Z", "2026-11-23T09:00:00Z")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"from": "soon"}, "from"),
        ({"to": "soon"}, "to"),
        ({"from": "2026-11-23", "to": "2026-11-22"}, "from"),
        ({"from": "2026-11-01", "to": "2026-11-22"}, "from"),
    ],
)
def test_invalid_input_is_400_and_named(query: dict[str, str], field: str) -> None:
    answer = Api().get("overnight/", **query)

    assert (answer.status, list(answer.body)) == (400, [field])


def test_overnight_requires_permission_to_view_runs() -> None:
    assert Api(["runs.view_run"], name="may").get("overnight/").status == 200
    assert Api(["triggers.view_event"], name="may-not").get("overnight/").status == 403


def test_a_span_before_all_ids_is_empty() -> None:
    answer = Api().get("overnight/", to="1960-01-01T09:00")

    assert (answer.status, answer.body["agents"]) == (200, [])
