"""Create, change, disable and delete subscriptions: what the console and the API call. ValidationError names the field and the fix."""

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urldefrag, urlsplit
from uuid import UUID

import structlog
from django.core.exceptions import ValidationError
from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from agents.kernel.redaction import know
from runs.db.sql import execute
from runs.models.audit import changes as what_changed
from runs.models.audit import record
from runs.network.outgoing import what_is_wrong_with
from runs.network.signing import new_secret
from triggers.dispatch_lock import wait_for_dispatch
from triggers.matching.expressions.cel import ExpressionError, check_condition
from triggers.models import Subscription
from triggers.models.slug import slug_problems
from triggers.outbound import secrets

log = structlog.get_logger(__name__)

CHANGEABLE = frozenset({"sources", "types", "filter", "enabled"})
LONGEST_URL = 2_000  # characters
MOST_GLOBS, LONGEST_GLOB = 100, 255
GLOB = re.compile(r"\S+")
FEW = 1_000
DISABLED, REMOVED = "the subscription is disabled", "the subscription was deleted"
END_WAITING = """
UPDATE triggers_eventdelivery SET status = 'failed', reason = %(reason)s::text, due_at = NULL, ended_at = clock_timestamp()
WHERE id = ANY(ARRAY(
  SELECT id FROM triggers_eventdelivery WHERE subscription_id = %(subscription)s::uuid AND status = 'pending'
  LIMIT %(few)s::int FOR UPDATE SKIP LOCKED))
"""


@not_in_atomic_body
def create_subscription(slug: str, *, url: str, secret: str = "", by: str, **rules: Any) -> tuple[Subscription, str]:
    """The new subscription, and its secret, which cannot be read again: the one that is given, or a new one."""
    plain = secrets.checked(secret) if secret else new_secret()
    subscription = Subscription(slug=slug)
    if problems := [problem.removeprefix("slug: ") for problem in slug_problems(slug)]:
        raise ValidationError({"slug": f"A slug {problems[0]}."})
    _apply(subscription, {"url": url, **rules})
    with transaction.atomic():
        if Subscription.objects.filter(slug=slug).exists():
            raise ValidationError({"slug": f"There is a subscription {slug!r} already. Enter another slug."})
        subscription.save(force_insert=True)
        secrets.add(subscription, plain)
        record(by, "create", subscription, slug=slug, address=subscription.address, **rules)
    return subscription, plain


@not_in_atomic_body
def change_subscription(subscription: Subscription, changes: Mapping[str, Any], *, by: str) -> Subscription:
    """Change its URL, what it wants, or whether it is enabled. What waits for one that is disabled fails."""
    with transaction.atomic():
        row = Subscription.objects.select_for_update().get(pk=subscription.pk)
        before = {name: getattr(row, name, None) for name in changes if name != "url"}
        _apply(row, changes)
        if "enabled" in changes:
            row.disabled_reason = ""
            row.failing_since, row.error = None, ""
        row.save()
        shown = {name: value for name, value in changes.items() if name != "url"}
        record(by, "change", row, address_changed="url" in changes, **what_changed(before, shown))
    if not row.enabled:
        end_all_waiting(row.pk, DISABLED)
    return row


def disable(subscription_id: UUID, *, reason: str) -> None:
    """Disable the subscription in the caller's transaction, with the reason."""
    enabled = Subscription.objects.filter(pk=subscription_id, enabled=True)
    if enabled.update(enabled=False, disabled_reason=reason):
        log.error("subscription.disabled", subscription=str(subscription_id), reason=reason)


@not_in_atomic_body
def remove_subscription(subscription: Subscription, *, by: str) -> None:
    """What was sent stays, under its name. What waits fails: first in pieces, then, while no event is dispatched, the rest."""
    Subscription.objects.filter(pk=subscription.pk).update(enabled=False)
    end_all_waiting(subscription.pk, REMOVED)
    with transaction.atomic():
        wait_for_dispatch()
        end_all_waiting(subscription.pk, REMOVED)
        row = Subscription.objects.select_for_update().get(pk=subscription.pk)
        record(by, "remove", row, slug=row.slug)
        row.delete()


def end_waiting(subscription_id: UUID, reason: str) -> int:
    """Fail the next deliveries that wait for it; returns how many."""
    return execute(END_WAITING, {"subscription": subscription_id, "reason": reason, "few": FEW})


def end_all_waiting(subscription_id: UUID, reason: str) -> None:
    while end_waiting(subscription_id, reason) == FEW:
        pass


def _apply(subscription: Subscription, values: Mapping[str, Any]) -> None:
    if unknown := set(values) - CHANGEABLE - {"url"}:
        raise TypeError(f"{', '.join(sorted(unknown))} cannot be set")
    if faults := dict(_faults(values)):
        raise ValidationError(faults)
    for name in CHANGEABLE & set(values):
        setattr(subscription, name, values[name])
    if "url" in values:
        url = values["url"].strip()
        know(url)
        subscription.address = shown(url)
        subscription.ciphertext = secrets.sealed(url, field="url")


def shown(url: str) -> str:
    """Paths and queries of webhooks often are secrets."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname}{port}/…"


def _faults(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "url" in values and (wrong := _fault_of_url(values["url"].strip())):
        yield "url", f"This URL cannot be used: {wrong}."
    if "types" in values and not values["types"]:
        yield "types", "Enter at least one type, such as invoice.* or *."
    for name in {"types", "sources"} & set(values):
        globs = values[name]
        if len(globs) > MOST_GLOBS or any(len(glob) > LONGEST_GLOB or not GLOB.fullmatch(glob) for glob in globs):
            yield name, f"Enter up to {MOST_GLOBS} globs without spaces, of up to {LONGEST_GLOB} characters."
    if values.get("filter"):
        try:
            check_condition(values["filter"])
        except ExpressionError as error:
            yield "filter", str(error)


def _fault_of_url(url: str) -> str:
    if len(url) > LONGEST_URL:
        return f"it has more than {LONGEST_URL:,} characters"
    if wrong := what_is_wrong_with(url):
        return wrong
    if urlsplit(url).username is not None or urlsplit(url).password is not None:
        return "it has a user or a password; receivers authenticate the signature"
    return "it has a part behind #, which is not sent" if urldefrag(url).fragment else ""
