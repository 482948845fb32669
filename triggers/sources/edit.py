"""Create and change sources. The settings of a source are those of its kind."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from runs.models.audit import record
from triggers.exceptions import Invalid
from triggers.models import Source
from triggers.models.slug import slug_problems
from triggers.sources.kind import kinds
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.limits import clean_limits
from triggers.sources.webhooks.scheme import schemes


@not_in_atomic_body
def create_source(
    slug: str,
    *,
    kind: str,
    settings: Mapping[str, Any],
    limits: Mapping[str, Any] | None = None,
    enabled: bool = True,
    by: str,
) -> Source:
    """Create a source, without a secret. Invalid names each wrong field."""
    _check([*slug_problems(slug)], kind, settings, limits)
    fields = {"kind": kind, "settings": settings, "limits": limits or {}, "enabled": enabled}
    with transaction.atomic():
        source = Source.objects.create(slug=slug, **fields)
        record(by, "create", source, **fields)
        transaction.on_commit(partial(kinds()[kind].saved, source.pk))
    return source


@not_in_atomic_body
def change_source(source: Source, changes: Mapping[str, Any], *, by: str) -> None:
    """Change its settings or limits, or enable or disable it. Invalid names each wrong field."""
    _check([], source.kind, changes.get("settings"), changes.get("limits"))
    with transaction.atomic():
        for name, value in changes.items():
            setattr(source, name, value)
        source.save(update_fields=list(changes))
        record(by, "change", source, **changes)
        transaction.on_commit(partial(kinds()[source.kind].saved, source.pk))


def _check(
    problems: list[str], kind: str, settings: Mapping[str, Any] | None, limits: Mapping[str, Any] | None
) -> None:
    if kind not in kinds():
        raise Invalid([*problems, f"kind: {kind!r} is unknown; use {', '.join(kinds())}"])
    for name, values, check in (
        ("settings", settings, kinds()[kind].check),
        ("limits", limits, clean_limits if kind in schemes() else _no_limits),
    ):
        try:
            if values is not None:
                check(values)
        except InvalidSettings as error:
            problems += [f"{name}.{field}: {problem}" for field, problem in error.errors.items()]
    if problems:
        raise Invalid(problems)


def _no_limits(limits: Mapping[str, Any]) -> None:
    if limits:
        raise InvalidSettings(dict.fromkeys(limits, "is only for webhooks; leave it out"))
