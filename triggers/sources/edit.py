"""Create and change sources. The settings of a source are those of its kind."""

from collections.abc import Mapping
from typing import Any

from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from runs.models.audit import record
from triggers.exceptions import Invalid
from triggers.models import Source
from triggers.models.slug import slug_problems
from triggers.sources.kind import kinds
from triggers.sources.settings import InvalidSettings


@not_in_atomic_body
def create_source(slug: str, *, kind: str, settings: Mapping[str, Any], enabled: bool = True, by: str) -> Source:
    """Create a source, without a secret. Invalid names each wrong field."""
    _check([*slug_problems(slug)], kind, settings)
    with transaction.atomic():
        source = Source.objects.create(slug=slug, kind=kind, settings=settings, enabled=enabled)
        record(by, "create", source, kind=kind, settings=settings, enabled=enabled)
    return source


@not_in_atomic_body
def change_source(source: Source, changes: Mapping[str, Any], *, by: str) -> None:
    """Change its settings, or enable or disable it. Invalid names each wrong field."""
    _check([], source.kind, changes.get("settings"))
    with transaction.atomic():
        for name, value in changes.items():
            setattr(source, name, value)
        source.save(update_fields=list(changes))
        record(by, "change", source, **changes)


def _check(problems: list[str], kind: str, settings: Mapping[str, Any] | None) -> None:
    if kind not in kinds():
        problems.append(f"kind: {kind!r} is unknown; use {', '.join(kinds())}")
    elif settings is not None:
        try:
            kinds()[kind].clean_settings(settings)
        except InvalidSettings as error:
            problems += [f"settings.{name}: {problem}" for name, problem in error.errors.items()]
    if problems:
        raise Invalid(problems)
