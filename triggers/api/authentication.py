"""Authentication by API token, and the permission that each action requires."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from django.db.models.functions import Now
from django.utils import timezone
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from triggers.api.tokens import ALL, hash_of_token
from triggers.models import ApiToken
from triggers.sources.http.answers import on_live_connection

if TYPE_CHECKING:
    from rest_framework.views import APIView  # it imports this module, through the default classes in the settings

USE_NOTED_EVERY = timedelta(minutes=1)


@dataclass(frozen=True, kw_only=True)
class Principal:
    """The caller: a token, with the part of a Django user that permission checks need."""

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
    """Checks that the caller has the permission that the view requires for this action. An action without one is
    refused.

    A viewset declares `required_permissions = {"list": "runs.view_run", …}`, another view `{"post": …}`.
    """

    def has_permission(self, request: Request, view: "APIView") -> bool:
        if not (request.user and request.user.is_authenticated):
            return False
        action = getattr(view, "action", (request.method or "").lower())
        if action in (None, "metadata", "options"):
            return True  # a method that this address does not have, or OPTIONS
        required: Mapping[str, str] = getattr(view, "required_permissions", {})
        return action in required and request.user.has_perm(required[action])


def _find(plain: bytes) -> ApiToken | None:
    return ApiToken.objects.filter(hash=hash_of_token(plain), revoked_at=None).first()


def _note_use(token: ApiToken) -> None:
    # Once a minute: a busy token must not cost a write per request.
    if token.last_used_at is None or token.last_used_at < timezone.now() - USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=Now())
