"""An installation that has run little yet: its agents, one button that sends a test event, and the runs that came of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from config.console.home.agents import describe
from config.console.home.causes import Act
from config.console.parts.links import link, page, run_link
from config.console.parts.sections import Cell
from config.console.runs.words import STATUS_COLOURS
from runs.models import Run
from triggers.models import Source, Trigger
from triggers.sources.webhooks.test_event import can_be_tried

FEW = 3  # runs; from then on the page shows days
TRIGGERS = 20
DOTS = {"success": "good", "danger": "bad", "warning": "warning"}


@dataclass(frozen=True, kw_only=True)
class First:
    agents: Sequence[tuple[Cell, str]]
    act: Act | None
    said: str
    runs: Sequence[tuple[Cell, str, str, str]]


def first(*, may_fire: bool) -> First | None:
    """None if there were more than a few runs."""
    runs = list(Run.objects.order_by("-id").only("id", "agent", "status")[: FEW + 1])
    if len(runs) > FEW:
        return None
    triggers = list(Trigger.objects.filter(enabled=True, paused_at=None).order_by("created_at", "slug")[:TRIGGERS])
    act, said = _test(triggers) if may_fire else (None, "")
    return First(
        agents=[(link(page("triggers_trigger", one.pk), one.agent), describe(one.agent)) for one in triggers],
        act=act,
        said=said,
        runs=[(run_link(run.pk, run.agent), run.agent, run.status, _dot(run.status)) for run in runs],
    )


def _dot(status: str) -> str:
    return DOTS.get(STATUS_COLOURS.get(status, ""), "")


def _test(triggers: Sequence[Trigger]) -> tuple[Act | None, str]:
    """A sample of a source that a trigger listens to; without one, an event that is aimed at the first trigger."""
    slugs = [one.source for one in triggers if one.source]
    for source in Source.objects.filter(slug__in=slugs, enabled=True).order_by("slug"):
        if can_be_tried(source):
            return _act(f"source:{source.pk}"), f"A signed sample of source {source.slug}, through its real door."
    for trigger in triggers:
        return _act(f"trigger:{trigger.pk}"), f"An event that is aimed at trigger {trigger.slug}: agent {trigger.agent} runs."  # fmt: skip
    return None, ""


def _act(value: str) -> Act:
    return Act(verb="test", label="Send this test event", value=value, is_primary=True)
