"""Every action of the API needs a permission of its own, and no other one opens it."""

import pytest

from tests.support.api import Api
from tests.support.console import make_schedule
from tests.support.journals import make_asking_run
from tests.support.triggers import make_event, make_trigger

pytestmark = pytest.mark.django_db

NEEDED = [
    ("get", "events/", "triggers.view_event"),
    ("post", "events/", "triggers.add_event"),
    ("post", "events/{event}/replay/", "triggers.replay_event"),
    ("get", "triggers/", "triggers.view_trigger"),
    ("post", "triggers/greeter/fire/", "triggers.fire_trigger"),
    ("post", "triggers/greeter/pause/", "triggers.pause_trigger"),
    ("post", "triggers/greeter/resume/", "triggers.pause_trigger"),
    ("get", "sources/", "triggers.view_source"),
    ("get", "schedules/", "triggers.view_schedule"),
    ("get", "schedules/{schedule}/", "triggers.view_schedule"),
    ("get", "schedules/{schedule}/fires/", "triggers.view_schedule"),
    ("get", "schedules/{schedule}/why/?at=2050-01-01T09:00", "triggers.view_schedule"),
    ("get", "schedules/{schedule}/skips/", "triggers.view_schedule"),
    ("post", "schedules/preview/", "triggers.view_schedule"),
    ("post", "schedules/", "triggers.add_schedule"),
    ("patch", "schedules/{schedule}/", "triggers.change_schedule"),
    ("delete", "schedules/{schedule}/", "triggers.delete_schedule"),
    ("post", "schedules/{schedule}/pause/", "triggers.pause_trigger"),
    ("post", "schedules/{schedule}/resume/", "triggers.pause_trigger"),
    ("post", "schedules/{schedule}/fire/", "triggers.fire_trigger"),
    ("get", "calendars/", "triggers.view_exclusioncalendar"),
    ("post", "calendars/", "triggers.add_exclusioncalendar"),
    ("put", "calendars/at/", "triggers.change_exclusioncalendar"),
    ("delete", "calendars/at/", "triggers.delete_exclusioncalendar"),
    ("get", "runs/", "runs.view_run"),
    ("get", "runs/{run}/", "runs.view_run"),
    ("post", "runs/{run}/requeue/", "runs.requeue_run"),
    ("post", "runs/{run}/cancel/", "runs.cancel_run"),
    ("post", "runs/{run}/fork/", "runs.fork_run"),
    ("post", "runs/{run}/signal/", "runs.signal_run"),
    ("post", "runs/{run}/resolve/", "runs.resolve_run"),
    ("get", "approvals/", "runs.view_approval"),
    ("post", "approvals/{approval}/decide/", "runs.decide_approval"),
    ("get", "queues/", "runs.view_queue"),
    ("post", "queues/all/pause/", "runs.pause_queue"),
    ("post", "queues/all/resume/", "runs.pause_queue"),
    ("post", "queues/default/limit/", "runs.change_queue"),
]


@pytest.mark.parametrize(("method", "path", "permission"), NEEDED)
def test_every_action_needs_its_own_permission(method: str, path: str, permission: str) -> None:
    make_trigger()
    approval = make_asking_run()
    made = {
        "event": make_event().pk,
        "schedule": make_schedule("digest").pk,
        "approval": approval.pk,
        "run": approval.wait.run_id,
    }
    path = "/api/v1/" + path.format(**made)
    others = sorted({needed for *_, needed in NEEDED} - {permission})

    refused = getattr(Api(others, name="others").client, method)(path, {}, content_type="application/json")
    allowed = getattr(Api([permission], name="one").client, method)(path, {}, content_type="application/json")

    assert refused.status_code == 403
    assert allowed.status_code != 403
