"""A person draws a recorded series, arms a detector after trying it, and sees the episode and the run that it woke."""

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect
from pytest_django.live_server_helper import LiveServer

from tests.support.api import Api
from tests.support.console_in_a_browser import log_in
from tests.support.outbound import dispatched
from tests.support.triggers import make_trigger
from tests.triggers.sources.metrics.recorded import CLAIMS, observations
from triggers.models import MetricEpisode, Source

pytestmark = [pytest.mark.browser, pytest.mark.chaos, pytest.mark.django_db(transaction=True)]


def test_a_series_is_drawn_a_detector_is_armed_after_its_trial_and_the_episode_is_seen(
    live_server: LiveServer, page: Page
) -> None:
    log_in(page, live_server, "/admin/triggers/source/add/?choice=pushed")
    page.get_by_label("Name").fill("claims")
    page.get_by_role("button", name="Create the source").click()
    expect(page.get_by_text("No detector is armed")).to_be_visible()

    # The claims of 2014 to 2019, an hour for a week: the last one is now, and Covid is yet to come.
    history = [look.value for look in observations(CLAIMS)[104:427]]
    start = timezone.now().replace(microsecond=0) - timedelta(hours=len(history))
    push([(start + timedelta(hours=number), value) for number, value in enumerate(history)])
    page.reload()
    expect(page.locator("svg .series-value")).to_be_visible()

    page.get_by_role("link", name="Try a detector").click()
    expect(page.get_by_label("Margin")).to_be_visible()
    page.get_by_role("radio", name="Rate of change").check()
    expect(page.get_by_label("Margin")).to_be_hidden()
    page.get_by_label("Rise").fill("15%")
    page.get_by_label("Try on the last").select_option("30")
    page.get_by_role("button", name="Try it").click()
    # Hurricane Harvey; the result is in sight, below what was chosen.
    expect(
        page.get_by_text("It would have recorded 2 events: 1 when an episode opens, 1 when one closes.")
    ).to_be_in_viewport()
    expect(page.get_by_label("Rise")).to_have_value("15%")
    page.get_by_role("button", name="Arm it").click()
    expect(page.get_by_text("Rate of change is armed on claims")).to_be_visible()

    make_trigger("claims-watch", types=["metric.opened"])
    push([(timezone.now().replace(microsecond=0), 2_914_000)])
    dispatched()
    page.reload()

    expect(page.get_by_text("1 episode is open.")).to_be_visible()
    expect(page.locator("svg .series-episode.series-open")).to_be_visible()
    expect(page.locator("svg .series-run")).to_be_visible()
    assert MetricEpisode.objects.get().value == 2_914_000


def push(samples: list[tuple[datetime, float | None]]) -> None:
    body = {"samples": [{"time": at.astimezone(UTC).isoformat(), "value": value} for at, value in samples]}
    answer = Api(["triggers.push_sample"], name=f"pusher-{len(samples)}").post("sources/claims/samples/", body)
    assert answer.body["stored"] == len(samples) and Source.objects.get(slug="claims").kind == "pushed"
