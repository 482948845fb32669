"""The detectors that are armed on a source, as a list that export writes and import reads."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.db.sql import fetch
from triggers.exceptions import Invalid
from triggers.models import MetricDetector, Source
from triggers.sources.kind import kinds
from triggers.sources.metrics.arm import arm, cleaned, disarm
from triggers.sources.metrics.drift import WATCH, Drift
from triggers.sources.metrics.metric import Metric
from triggers.sources.metrics.samples import LOCK


def armed_on(source: Source) -> list[dict[str, Any]] | None:
    """Oldest first; None: the source has no detector and had none."""
    rows = sorted(source.detectors.all(), key=lambda row: row.pk)
    return [{"name": row.name, "settings": row.settings} for row in rows if row.disarmed_at is None] if rows else None


@not_in_atomic_body
def set_detectors(source: Source, wanted: Sequence[Any], *, by: str) -> None:
    """Arm and disarm until these are armed. One that is armed already goes on with all that it has learned. Invalid names each wrong
    entry."""
    if not isinstance(kinds()[source.kind], Metric):
        raise Invalid([f"detectors: is only for metrics; the kind of this source is {source.kind}"])
    missing = _checked(wanted)
    with transaction.atomic():
        fetch(LOCK, [source.pk])
        rows = MetricDetector.objects.filter(source=source).order_by("id")
        for row in rows.filter(disarmed_at=None):
            if (row.name, row.settings) in missing:
                missing.remove((row.name, row.settings))
            else:
                disarm(row, by=by)
        for name, settings in missing:
            arm(source, name, settings, by=by)
        if source.kind == Drift.name and not rows.filter(name=WATCH).exists():
            # Its first sample arms one on a source that never had it.
            MetricDetector.objects.create(source=source, name=WATCH, disarmed_at=Now())


def _checked(wanted: Sequence[Any]) -> list[tuple[str, Mapping[str, Any]]]:
    found: list[tuple[str, Mapping[str, Any]]] = []
    problems: list[str] = []
    for number, entry in enumerate(wanted):
        match entry:
            case {"name": str(name), "settings": dict(settings), **others} if not others:
                try:
                    cleaned(name, settings)
                except Invalid as invalid:
                    problems += [f"detectors[{number}].{problem}" for problem in invalid.problems]
                found.append((name, settings))
            case _:
                problems.append(f'detectors[{number}]: must be an object with "name" and "settings"')
    if problems:
        raise Invalid(problems)
    return found
