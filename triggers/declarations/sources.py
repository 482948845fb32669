"""Sources that agents declare in code, together with a trigger, become rows.

As with triggers, a setting that differs from the declaration of the last sync is an operator's and stays. A source whose
declaration is gone is disabled, and enabled when the declaration returns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.db import transaction

from agents.exceptions import DeclarationError
from agents.on import SourceTrigger
from runs.models.audit import changes, record
from triggers.models import Source
from triggers.sources.kind import kinds
from triggers.sources.settings import InvalidSettings, NotYet

VANISHED = "(vanished)"  # in `declared`: whether the source was enabled


@dataclass(frozen=True, kw_only=True)
class WantedSource:
    """A source as the code declares it."""

    slug: str
    kind: str
    settings: Mapping[str, Any]
    waits: str = ""  # for what is not there yet, such as a table


def wanted_source(slug: str, declaration: SourceTrigger) -> WantedSource:
    """Raises DeclarationError."""
    kind = kinds()[declaration.kind]
    settings = {field.name: field.default for field in kind.fields} | dict(declaration.settings)
    waits = ""
    try:
        kind.check(settings)
    except NotYet as missing:  # everything else starts; the source's page shows this error
        waits = str(missing)
    except InvalidSettings as error:
        raise DeclarationError(f"{kind.label}: {error}") from None
    return WantedSource(slug=declaration.source or slug, kind=declaration.kind, settings=settings, waits=waits)


def source_problems(wanted: Sequence[WantedSource]) -> list[str]:
    """Names that are taken by other sources."""
    known = Source.objects.in_bulk([each.slug for each in wanted], field_name="slug")
    return [
        f"another source is named {each.slug!r}; give the declared trigger another slug="
        for each in wanted
        if (source := known.get(each.slug)) and (source.declared is None or source.kind != each.kind)
    ]


def sync_sources(wanted: Sequence[WantedSource], by: str) -> list[tuple[str, str]]:
    """Make the declared sources match; return the slugs and what was done. Call in a transaction."""
    declared = Source.objects.select_for_update(no_key=True).exclude(declared=None)
    known = {source.slug: source for source in declared}
    slugs = {each.slug for each in wanted}
    done = [
        *(change for each in wanted if (change := _sync_one(each, known.get(each.slug), by))),
        *_vanish([source for slug, source in known.items() if slug not in slugs], by),
    ]
    for source in Source.objects.filter(slug__in=[slug for slug, _ in done], kind__in=kinds()):
        transaction.on_commit(partial(kinds()[source.kind].saved, source.pk))
    return done


def _sync_one(wanted: WantedSource, source: Source | None, by: str) -> tuple[str, str] | None:
    settings = dict(wanted.settings)
    if source is None:
        source = Source.objects.create(slug=wanted.slug, kind=wanted.kind, settings=settings, declared=settings)
        record(by, "create", source, kind=wanted.kind, settings=settings)
        return wanted.slug, "created"
    was = dict(source.declared or {})
    enabled = source.enabled or was.pop(VANISHED, False)
    owned = {
        name for name in settings.keys() & source.settings.keys() & was.keys() if source.settings[name] != was[name]
    }
    new = {name: source.settings[name] if name in owned else value for name, value in settings.items()}
    if (source.settings, source.declared, source.enabled) == (new, settings, enabled):
        return None
    word = "changed" if enabled == source.enabled else "enabled again"
    before = {"settings": source.settings, "enabled": source.enabled}
    source.settings, source.declared, source.enabled = new, settings, enabled
    source.save(update_fields=["settings", "declared", "enabled"])
    record(by, "change", source, **changes(before, {"settings": new, "enabled": enabled}))
    return wanted.slug, word


def _vanish(sources: Sequence[Source], by: str) -> Iterator[tuple[str, str]]:
    for source in sources:
        declared = dict(source.declared or {})
        if VANISHED in declared:
            continue
        before = {"enabled": source.enabled}
        source.declared = {**declared, VANISHED: source.enabled}
        source.enabled = False
        source.save(update_fields=["declared", "enabled"])
        record(by, "change", source, **changes(before, {"enabled": False}))
        yield source.slug, "disabled, because its declaration is gone"
