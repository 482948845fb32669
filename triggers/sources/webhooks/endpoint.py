"""The source behind an address, and its valid secrets."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any
from uuid import UUID

import structlog
from cryptography.fernet import InvalidToken
from django.core.exceptions import ImproperlyConfigured
from django.db import Error
from django.utils import timezone
from rest_framework.exceptions import NotFound

from runs.db.encryption import decrypt
from runs.db.sql import execute, fetch
from triggers.accept import STATE
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.kept import Kept
from triggers.sources.webhooks.limits import Limits, clean_limits
from triggers.sources.webhooks.proof import MATCH_NOTED_EVERY, SigningSecret
from triggers.sources.webhooks.receive import Misconfigured, cleaned
from triggers.sources.webhooks.scheme import Scheme, schemes

log = structlog.get_logger(__name__)

# Raw SQL: this runs for each delivery, and the ORM takes a millisecond to build the statement.
ENDPOINT = f"""
SELECT source.id, source.kind, source.settings, source.limits, {STATE}, secret.id, secret.ciphertext, secret.last_matched_at
FROM triggers_source source LEFT JOIN triggers_secret secret ON secret.source_id = source.id
  AND secret.not_before <= statement_timestamp() AND (secret.not_after IS NULL OR secret.not_after > statement_timestamp())
WHERE source.slug = %s::text AND source.enabled AND source.kind = ANY(%s::text[])
"""  # noqa: S608  (a constant)
# A locked row is skipped: no sender waits for bookkeeping. Another process may have noted it meanwhile.
NOTE_MATCH = """
UPDATE triggers_secret SET last_matched_at = statement_timestamp()
 WHERE id = (SELECT id FROM triggers_secret WHERE id = %s::bigint
               AND (last_matched_at IS NULL OR last_matched_at < statement_timestamp() - %s::interval) FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A source of webhooks, with its valid secrets; `state` is the digest of both (`triggers.accept.STATE`)."""

    id: UUID
    slug: str
    kind: str
    settings: dict[str, Any]
    limits: Limits
    secrets: Sequence[SigningSecret]
    state: bytes

    @property
    def scheme(self) -> Scheme[Any]:
        return schemes()[self.kind]

    @cached_property
    def cleaned(self) -> tuple[Scheme[Any], Any]:
        """The scheme and its typed settings. Raises Misconfigured."""
        return cleaned(self.kind, self.settings)


kept: Kept[Endpoint] = Kept()


def read_endpoint(slug: str) -> Endpoint:
    """The endpoint as it is now; it is kept."""
    kept.drop(slug)
    endpoint = find_endpoint(slug)
    kept.keep(slug, endpoint)
    return endpoint


def find_endpoint(slug: str) -> Endpoint:
    """The enabled webhook source with this slug and its valid secrets, in one query. Raises NotFound and Misconfigured."""
    rows = fetch(ENDPOINT, [slug, list(schemes())])
    if not rows:
        raise NotFound
    id_, kind, settings, limits, state = rows[0][:5]
    try:
        cleaned_limits = clean_limits(json.loads(limits))
    except InvalidSettings as error:
        raise Misconfigured(f"the limits of this source are invalid: {error}") from None
    sealed = [row[5:] for row in rows if row[5] is not None]
    return Endpoint(
        id=id_, slug=slug, kind=kind, settings=json.loads(settings), limits=cleaned_limits, secrets=_opened(sealed), state=bytes(state),
    )  # fmt: skip


def note_match(endpoint: Endpoint, secret: SigningSecret | None) -> None:
    """Record that senders still use this secret, at most once a minute."""
    if secret is None or not owes_note(secret):
        return
    try:
        execute(NOTE_MATCH, [secret.id, MATCH_NOTED_EVERY])
    except Error:
        # The event is committed, so the sender must get its 2xx.
        log.warning("hook.match_not_noted", source=endpoint.slug, secret=secret.id, exc_info=True)
    else:
        kept.replace(endpoint.slug, endpoint, _noted(endpoint, secret))


def owes_note(secret: SigningSecret) -> bool:
    return not secret.last_matched_at or timezone.now() - secret.last_matched_at >= MATCH_NOTED_EVERY


def _noted(endpoint: Endpoint, secret: SigningSecret) -> Endpoint:
    now = timezone.now()
    return replace(
        endpoint, secrets=[replace(one, last_matched_at=now) if one is secret else one for one in endpoint.secrets]
    )


def _opened(sealed: Sequence[tuple[int, bytes, datetime | None]]) -> list[SigningSecret]:
    secrets = []
    for id_, ciphertext, last_matched_at in sealed:
        try:
            secrets.append(SigningSecret(id=id_, value=decrypt(ciphertext), last_matched_at=last_matched_at))
        except (InvalidToken, ImproperlyConfigured) as error:
            log.error("secret.unreadable", secret=id_, error=repr(error))
    if sealed and not secrets:
        raise Misconfigured("no key of WAKEFUL_ENCRYPTION_KEYS decrypts any of its live secrets")
    return secrets
