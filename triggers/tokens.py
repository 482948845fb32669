"""API tokens: `Authorization: Bearer …`, stored as SHA-256, each with its own permissions and its own way in."""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone
from django.utils.text import slugify
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from runs.audit import record
from triggers.models import ApiToken, Source
from triggers.sources.http.answers import on_live_connection

if TYPE_CHECKING:
    from rest_framework.views import APIView  # which imports this module, by the settings' default classes

ALL = "*"
PREFIX = "wkf_"  # lets secret scanners know one when they see it
USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who a request acts for: a token, with the part of a Django user that permissions need."""

    token: ApiToken
    is_authenticated: bool = True

    def has_perm(self, permission: str) -> bool:
        return ALL in self.token.permissions or permission in self.token.permissions

    def __str__(self) -> str:
        return f"token:{self.token.name}"


class TokenAuthentication(BaseAuthentication):
    """`request.user` becomes the Principal, `request.auth` its ApiToken."""

    def authenticate(self, request: Request) -> tuple[Principal, ApiToken] | None:
        scheme, _, plain = get_authorization_header(request).partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        token = on_live_connection(lambda: _find(plain.strip()))
        if token is None:
            raise AuthenticationFailed("Unknown or revoked token.")
        _note_use(token)
        return Principal(token=token), token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="wakeful"'


class HasPermission(BasePermission):
    """The principal holds the permission the view requires for this action; an action that names none is refused.

    A viewset says `required_permissions = {"list": "runs.view_run", …}`, another view `{"post": …}`.
    """

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not (request.user and request.user.is_authenticated):
            return False
        action = getattr(view, "action", (request.method or "").lower())
        if action in (None, "metadata", "options"):
            return True  # a method this address does not have, or a question about those it has
        required: Mapping[str, str] = getattr(view, "required_permissions", {})
        return action in required and request.user.has_perm(required[action])


def create_token(name: str, permissions: Iterable[str], by: str) -> tuple[ApiToken, str]:
    """A new token and its plain text, which is shown once and stored nowhere."""
    plain = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        token = _create(name, plain, permissions)
        record(by, "create", token, permissions=token.permissions)
    return token, plain


def revoke(token: ApiToken, by: str) -> ApiToken:
    """Refuse the token from now on; revoking twice changes nothing."""
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=Now()):
            record(by, "revoke", token)
    token.refresh_from_db()
    return token


def ensure_token(name: str, plain: str, permissions: Iterable[str], by: str = "setup") -> ApiToken:
    """The token of this name has this plain text and these permissions. One that was revoked stays so until the
    plain text changes."""
    with transaction.atomic():
        token = ApiToken.objects.select_for_update().filter(name=name).first()
        if token is None:
            token = _create(name, plain, permissions)
            record(by, "create", token, permissions=token.permissions)
            return token
        wanted = _known(permissions)
        if (token.hash, token.permissions) == (_hash(plain), wanted):
            return token
        if token.hash != _hash(plain):
            token.hash, token.revoked_at = _hash(plain), None
        token.permissions = wanted
        token.save(update_fields=["hash", "revoked_at", "permissions"])
        record(by, "change", token, permissions=wanted)
    return token


def _create(name: str, plain: str, permissions: Iterable[str]) -> ApiToken:
    token = ApiToken(name=name, hash=_hash(plain), permissions=_known(permissions))
    token.full_clean(exclude=["source"])
    if slugify(name) != name.lower():
        raise ValidationError(
            {"name": "Use letters, digits, - and _ only: its events come in by the source api-<name>."}
        )
    token.source = Source(slug=f"api-{name}", kind="api")
    token.source.full_clean()
    token.source.save()
    token.save()
    return token


def _known(permissions: Iterable[str]) -> list[str]:
    """The permissions, sorted; a misspelt one is an error now rather than a 403 later."""
    wanted = set(permissions)
    known = {
        f"{app}.{codename}" for app, codename in Permission.objects.values_list("content_type__app_label", "codename")
    }
    if unknown := wanted - known - {ALL}:
        raise ValidationError({"permissions": f"No such permission: {', '.join(sorted(unknown))}."})
    return sorted(wanted)


def _find(plain: bytes) -> ApiToken | None:
    return ApiToken.objects.filter(hash=_hash(plain), revoked_at=None).first()


def _hash(plain: str | bytes) -> str:
    return sha256(plain.encode() if isinstance(plain, str) else plain).hexdigest()


def _note_use(token: ApiToken) -> None:
    # Once a minute: a busy token must not cost a write per request.
    if token.last_used_at is None or token.last_used_at < timezone.now() - USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=Now())
