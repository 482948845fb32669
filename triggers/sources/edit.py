"""Create and change sources. The settings of a source are those of its kind."""

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.models import Connection
from runs.models.audit import changes as what_changed
from runs.models.audit import record
from triggers.exceptions import Invalid
from triggers.models import Source
from triggers.models.slug import slug_problems
from triggers.sources.kind import kinds
from triggers.sources.secrets import add_secret
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
    trusted: bool | None = None,
    by: str,
) -> Source:
    """Create a source, without a secret. `trusted`: no stranger writes its data; None: as for its kind. Invalid names each wrong
    field."""
    _check([*slug_problems(slug)], kind, settings, limits)
    fields = {"kind": kind, "settings": settings, "limits": limits or {}, "enabled": enabled}
    _require_owner(kind, settings, by)
    fields["trusted"] = kinds()[kind].is_trusted if trusted is None else trusted
    with transaction.atomic():
        source = Source.objects.create(slug=slug, **fields)
        record(by, "create", source, **fields)
        transaction.on_commit(partial(kinds()[kind].saved, source.pk))
    return source


@not_in_atomic_body
def change_source(source: Source, changes: Mapping[str, Any], *, secret: str = "", by: str) -> None:
    """Change a source's settings or limits, enable or disable it, or trust its data. Invalid names each wrong field.

    A stored secret is sent nowhere else than where it was entered for, and takes back no exclusion of columns that look like secrets:
    settings that change that need the secret. It takes the place of the stored ones.
    """
    _check([], source.kind, changes.get("settings"), changes.get("limits"))
    if changes.get("settings", source.settings) != source.settings:
        _require_owner(source.kind, source.settings, by)
        _require_owner(source.kind, changes["settings"], by)
    with transaction.atomic():
        redirects = "settings" in changes and _redirects(source, changes["settings"])
        if redirects and not secret:
            raise Invalid(
                [
                    f"secret: enter it again, as {' and '.join(redirects)} changed: it would be sent elsewhere, or read more"
                ]
            )
        before = {name: getattr(source, name) for name in changes}
        for name, value in changes.items():
            setattr(source, name, value)
        source.save(update_fields=list(changes))
        record(by, "change", source, **what_changed(before, changes))
        if secret:
            _replace_secret(source, secret, by)
        transaction.on_commit(partial(kinds()[source.kind].saved, source.pk))


def _require_owner(kind: str, settings: Mapping[str, Any], by: str) -> None:
    """A person's own connection is used by no source that someone else makes, or edits: its events are seen by others."""
    name = kinds()[kind].connection_of(settings)
    owner = Connection.objects.filter(name=name).values_list("owner", flat=True).first() if name else ""
    if owner and by != f"admin:{owner}":
        raise Invalid([f"settings.connection: {name} belongs to {owner}, who alone may have a source use it"])


def _redirects(source: Source, settings: Mapping[str, Any]) -> list[str]:
    """The changed settings that would send the source's stored secret elsewhere."""
    if not source.secrets.filter(Q(not_after=None) | Q(not_after__gt=Now())).exists():
        return []
    kind = kinds()[source.kind]
    # Of two edits at once, the later one sees what the earlier one stored.
    row = Source.objects.select_for_update(no_key=True).get(pk=source.pk)
    wanted = kind.secret_goes_to(settings)
    try:
        stored = kind.secret_goes_to(row.settings)
    except InvalidSettings:  # written by an earlier version: where the secret went is not known
        stored = {}
    return [name for name, where in wanted.items() if name not in stored or stored[name] != where]


def _replace_secret(source: Source, secret: str, by: str) -> None:
    try:
        add_secret(source, secret, grace=timedelta(), by=by)
    except InvalidSettings as error:
        raise Invalid([f"secret: {problem}" for problem in error.errors.values()]) from None


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
