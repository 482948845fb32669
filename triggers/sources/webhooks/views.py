"""POST /hooks/<source-slug>/: verify, record, answer. Nothing else is done before the answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from cryptography.fernet import InvalidToken
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.csrf import csrf_exempt
from rest_framework.exceptions import APIException, NotFound

from runs.api.body import read_body
from runs.db.encryption import decrypt
from runs.db.sql import execute, fetch
from runs.network.site import site
from triggers.accept import ReservedType, accept
from triggers.sources.http.answers import Unavailable, answer, on_live_connection, require_room, status_of
from triggers.sources.http.headers import UNREADABLE, Headers, UnreadableField
from triggers.sources.webhooks.proof import MATCH_NOTED_EVERY, Rejected, SigningSecret
from triggers.sources.webhooks.receive import Greeting, Misconfigured, Receipt, receive
from triggers.sources.webhooks.refused import DISABLED, RESERVED, note_refused
from triggers.sources.webhooks.scheme import Delivery, Reply, schemes

log = structlog.get_logger(__name__)

# Raw SQL: this runs for each delivery, and the ORM takes a millisecond to build the statement.
ENDPOINT = """
SELECT source.id, source.kind, source.settings, secret.id, secret.ciphertext, secret.last_matched_at
FROM triggers_source source LEFT JOIN triggers_secret secret ON secret.source_id = source.id
  AND secret.not_before <= statement_timestamp() AND (secret.not_after IS NULL OR secret.not_after > statement_timestamp())
WHERE source.slug = %s::text AND source.enabled AND source.kind = ANY(%s::text[])
"""
# A locked row is skipped: no sender waits for bookkeeping.
NOTE_MATCH = """
UPDATE triggers_secret SET last_matched_at = now()
 WHERE id = (SELECT id FROM triggers_secret WHERE id = %s::bigint FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """A source of webhooks, with its valid secrets."""

    id: UUID
    slug: str
    kind: str
    settings: dict[str, Any]
    secrets: Sequence[SigningSecret]


@method_decorator(csrf_exempt, name="dispatch")
class HookView(View):
    """A plain Django view, because it is faster; it answers errors like the API's views."""

    http_method_names = ["post"]

    def post(self, request: HttpRequest, slug: str) -> HttpResponse:
        try:
            return _take(request, slug)
        except Rejected as rejected:
            log.info("hook.rejected", source=slug, reason=rejected.reason)
            _note(request, slug, rejected.reason, 401)
            return JsonResponse({}, status=401, headers={"WWW-Authenticate": "Signature"})
        except UnreadableField as error:
            log.info("hook.refused", source=slug, reason=str(error))
            _note(request, slug, str(error), 400)
            return JsonResponse({"detail": str(error), "field": error.name}, status=400)
        except ReservedType as error:
            log.info("hook.refused", source=slug, reason=str(error))
            _note(request, slug, RESERVED, 400)
            return JsonResponse({"detail": str(error), "field": "type"}, status=400)
        except Misconfigured as error:
            log.error("hook.misconfigured", source=slug, reason=str(error))
            _note(request, slug, str(error), Unavailable.status_code)
            return refusal(Unavailable())
        except (OperationalError, InterfaceError) as error:
            log.error("hook.database_unavailable", source=slug, error=str(error))
            return refusal(Unavailable())
        except NotFound as unknown:
            _note(request, slug, DISABLED, unknown.status_code)
            return refusal(unknown)
        except APIException as refused:
            _note(request, slug, str(refused.detail), refused.status_code)
            return refusal(refused)


def _take(request: HttpRequest, slug: str) -> HttpResponse:
    body = read_body(request)
    endpoint = on_live_connection(lambda: find_endpoint(slug))
    require_room(endpoint.id, is_verified=schemes()[endpoint.kind].needs_secret)
    receipt = _receive(endpoint, request, body)
    if isinstance(receipt, Greeting):
        note_match(endpoint, receipt.secret)
        return _sent(receipt.reply)
    [accepted] = on_live_connection(lambda: accept([receipt.event]))
    note_match(endpoint, receipt.secret)
    return JsonResponse(answer(accepted), status=status_of(accepted))


def _sent(reply: Reply) -> HttpResponse:
    return HttpResponse(reply.body, status=reply.status, content_type=reply.content_type, headers=dict(reply.headers))


def _note(request: HttpRequest, slug: str, reason: str, status: int) -> None:
    note_refused(slug, reason=reason, status=status, user_agent=request.headers.get("User-Agent", ""))


def refusal(refused: APIException) -> JsonResponse:
    wait = getattr(refused, "wait", None)
    headers = {"Retry-After": str(wait)} if wait else {}
    return JsonResponse({"detail": refused.detail}, status=refused.status_code, headers=headers)


def find_endpoint(slug: str) -> Endpoint:
    """The enabled webhook source with this slug and its valid secrets, in one query. Raises NotFound."""
    rows = fetch(ENDPOINT, [slug, list(schemes())])
    if not rows:
        raise NotFound
    id_, kind, settings = rows[0][:3]
    sealed = [row[3:] for row in rows if row[3] is not None]
    return Endpoint(id=id_, slug=slug, kind=kind, settings=json.loads(settings), secrets=_opened(sealed))


def note_match(endpoint: Endpoint, secret: SigningSecret | None) -> None:
    """Record that senders still use this secret, at most once a minute."""
    if secret is None or (secret.last_matched_at and timezone.now() - secret.last_matched_at < MATCH_NOTED_EVERY):
        return
    try:
        execute(NOTE_MATCH, [secret.id])
    except Error:
        # The event is committed, so the sender must get its 2xx.
        log.warning("hook.match_not_noted", source=endpoint.slug, secret=secret.id, exc_info=True)


def _receive(endpoint: Endpoint, request: HttpRequest, body: bytes) -> Receipt | Greeting:
    delivery = Delivery(
        source_id=endpoint.id,
        endpoint=f"/hooks/{endpoint.slug}/",
        headers=Headers(request.headers, request.META.get(UNREADABLE, ())),
        body=body,
        received_at=timezone.now(),
        url=site() + request.get_full_path(),
    )
    return receive(endpoint.kind, endpoint.settings, endpoint.secrets, delivery)


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
