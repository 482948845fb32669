import pytest

from runs.models import AuditEntry, Queue
from runs.queues.pause import EVERY
from tests.support.api import Api
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def test_queues_are_listed_with_their_waiting_runs_and_all_first() -> None:
    make_run()

    answer = Api().get("queues/")

    assert [queue["name"] for queue in answer.body["results"]] == ["all", "default"]
    assert answer.body["results"][1]["ready"] == 1
    assert (answer.body["next"], answer.body["previous"]) == (None, None)


@pytest.mark.parametrize(("spelled", "name"), [("default", "default"), ("all", EVERY)])
def test_a_queue_is_paused_and_resumed(spelled: str, name: str) -> None:
    api = Api()

    paused = api.post(f"queues/{spelled}/pause/", {"reason": "the printer burns"})
    assert (paused.status, paused.body["name"], paused.body["paused_reason"]) == (200, spelled, "the printer burns")
    assert Queue.objects.get(pk=name).paused_by == "token:ci"

    resumed = api.post(f"queues/{spelled}/resume/")
    assert (resumed.status, resumed.body["paused_at"]) == (200, None)


def test_a_queue_in_that_state_already_is_409() -> None:
    api = Api()

    answer = api.post("queues/all/resume/")
    assert (answer.status, answer.body["status"]) == (409, "active")

    api.post("queues/all/pause/")
    answer = api.post("queues/all/pause/")
    assert (answer.status, answer.body["status"]) == (409, "paused")


def test_an_unknown_queue_is_404_and_shows_it() -> None:
    answer = Api().post("queues/defualt/pause/")

    assert answer.status == 404
    assert "defualt" in answer.body["detail"]


def test_a_limit_is_set_and_taken_away() -> None:
    api = Api()

    assert api.post("queues/default/limit/", {"max_running": 3}).body["max_running"] == 3
    assert api.post("queues/default/limit/", {"max_running": None}).body["max_running"] is None
    assert AuditEntry.objects.filter(action="limit").count() == 2


@pytest.mark.parametrize(
    ("queue", "body"), [("default", {"max_running": 0}), ("default", {}), ("all", {"max_running": 3})]
)
def test_a_limit_that_makes_no_sense_is_400_naming_the_field(queue: str, body: dict[str, int]) -> None:
    answer = Api().post(f"queues/{queue}/limit/", body)

    assert (answer.status, list(answer.body)) == (400, ["max_running"])
