from collections.abc import Sequence
from dataclasses import dataclass

from triggers.sources.kind import Waits, register
from triggers.sources.metrics.metric import Metric, MetricReader, MetricSettings
from triggers.sources.metrics.samples import Sample
from triggers.sources.polling.poller import interval
from triggers.sources.runner import Assignment, Reader
from triggers.sources.settings import setting


@dataclass(frozen=True, kw_only=True)
class PushedSettings(MetricSettings):
    """Settings of pushed metrics: how often to look for missing samples."""

    every: str = setting(
        "30s",
        "Look every",
        "Time between two looks for missing data, from 10s to 7d. Samples are seen as they come.",
        check=interval,
    )


@register
class Pushed(Metric[PushedSettings]):
    name = "pushed"
    label = "Pushed samples"
    help_text = "Takes samples that your programs send to the API, one by one or many at once."
    settings_class = PushedSettings
    waits = Waits.SENDER
    needs_secret = False
    setup = (
        "Create an API token with the permission triggers.push_sample.",
        'POST {"samples": [{"series": "disk", "time": "2026-11-23T10:00:00Z", "value": 81.5}]} to /api/v1/sources/<name>/samples/. '
        "Series may be left out if there is only one, and time if it is now.",
        "When some samples are there, try detectors on them and arm one.",
    )

    def connect(self, assignment: Assignment[PushedSettings]) -> Reader:
        return PushedReader(assignment, target="")


class PushedReader(MetricReader):
    """There is nothing to read: each poll is a look for missing data."""

    def samples(self) -> Sequence[Sample]:
        return ()
