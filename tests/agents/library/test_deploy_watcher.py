"""The deploy watcher looks again and again until a deploy answers well."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents.exceptions import Permanent, StepFailed
from agents.library.deploy_watcher import deploy_watcher
from agents.testing import AgentResult, assert_replays, run_agent
from tests.agents.tools.test_http import Site, site

__all__ = ["site"]
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _allowed(site: Site, settings: Any) -> None:
    settings.WAKEFUL_HTTP_ALLOW = [f"127.0.0.1:{site.port}"]
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]


def deployed(site: Site, path: str = "/ok", **data: Any) -> dict[str, Any]:
    return {"service": "shop", "url": site.url(path), **data}


def look(data: Any, **options: Any) -> AgentResult:
    return run_agent(deploy_watcher, data=data, type="deploy.started", **options)


def test_a_deploy_that_answers_well_three_times_ends_in_silence(site: Site) -> None:
    data, looks = deployed(site, expect="hello"), 0
    while True:
        done = look(data)
        looks += 1
        if not done.wakes:
            break
        [wake] = done.wakes
        assert wake.after == timedelta(seconds=30)
        data = wake.data

    assert looks == 3
    assert [event.type for event in done.emitted] == ["deploy.healthy"]
    assert not done.notifications


def test_a_bad_answer_begins_the_row_again(site: Site) -> None:
    done = look(deployed(site, good=2, expect="v1.4"))

    [wake] = done.wakes
    assert (wake.data["good"], done.result["fault"]) == (0, "another answer than expected")
    assert_replays(done)


def test_a_deploy_that_does_not_answer_well_in_time_is_reported_urgently(site: Site) -> None:
    began = datetime.now(UTC) - timedelta(minutes=16)

    done = look(deployed(site, expect="v1.4", began=began.isoformat()))

    [notice] = done.notifications
    assert notice.text.startswith("The deploy of shop does not answer well after 16 min")
    assert notice.urgency == "high"
    assert not done.wakes


def test_an_older_watch_ends_when_a_newer_deploy_begins(site: Site) -> None:
    now = datetime.now(UTC)
    look(deployed(site), time=now)

    old = look(deployed(site, began=(now - timedelta(minutes=5)).isoformat()))

    assert old.result["ended"] == "a newer deploy is watched"
    assert not old.wakes


def test_a_host_that_is_not_allowed_is_not_called(site: Site) -> None:
    with pytest.raises(StepFailed, match="WAKEFUL_HTTP_ALLOW"):
        look({"service": "shop", "url": site.url("/ok", host="localhost")})
    assert not site.asked


@pytest.mark.parametrize("data", [None, {}, {"service": "shop"}, {"service": "shop", "url": "x", "minutes": 0}])
def test_an_event_that_is_no_deploy_fails_permanently(data: Any) -> None:
    with pytest.raises(Permanent):
        look(data)
