"""API tokens: `Authorization: Bearer …`, stored as SHA-256, each with its own permissions and its own source."""

import secrets
from collections.abc import Iterable
from hashlib import sha256

from django.contrib.auth.models import Permission
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models.functions import Now
from django.utils.text import slugify

from agents.kernel.redaction import TOKEN_PREFIX
from runs.models.audit import changes, record
from triggers.models import ApiToken, Source

ALL = "*"
PREFIX = TOKEN_PREFIX  # so that secret scanners recognise a token


def create_token(name: str, permissions: Iterable[str], by: str) -> tuple[ApiToken, str]:
    """Create a token; returns it and its plain text, which is stored nowhere."""
    plain = PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        token = _create(name, plain, permissions)
        record(by, "create", token, permissions=token.permissions)
    return token, plain


def revoke(token: ApiToken, by: str) -> ApiToken:
    """Refuse the token from now on. Revoking it again changes nothing."""
    with transaction.atomic():
        if ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=Now()):
            record(by, "revoke", token)
    token.refresh_from_db()
    return token


def ensure_token(name: str, plain: str, permissions: Iterable[str], by: str = "setup") -> ApiToken:
    """Create the token or set its plain text and permissions. A revoked token stays revoked until its plain text
    changes."""
    with transaction.atomic():
        token = ApiToken.objects.select_for_update().filter(name=name).first()
        if token is None:
            token = _create(name, plain, permissions)
            record(by, "create", token, permissions=token.permissions)
            return token
        wanted, before = _known(permissions), token.permissions
        if (token.hash, token.permissions) == (hash_of_token(plain), wanted):
            return token
        if token.hash != hash_of_token(plain):
            token.hash, token.revoked_at = hash_of_token(plain), None
        token.permissions = wanted
        token.save(update_fields=["hash", "revoked_at", "permissions"])
        record(by, "change", token, **changes({"permissions": before}, {"permissions": wanted}))
    return token


def _create(name: str, plain: str, permissions: Iterable[str]) -> ApiToken:
    token = ApiToken(name=name, hash=hash_of_token(plain), permissions=_known(permissions))
    token.full_clean(exclude=["source"])
    if slugify(name) != name.lower():
        raise ValidationError({"name": "Use letters, digits, - and _ only: its events get the source api-<name>."})
    token.source = Source(slug=f"api-{name}", kind="api")
    token.source.full_clean()
    token.source.save()
    token.save()
    return token


def _known(permissions: Iterable[str]) -> list[str]:
    """The permissions, sorted. ValidationError for one that does not exist."""
    wanted = set(permissions)
    known = {
        f"{app}.{codename}" for app, codename in Permission.objects.values_list("content_type__app_label", "codename")
    }
    if unknown := wanted - known - {ALL}:
        raise ValidationError({"permissions": f"No such permission: {', '.join(sorted(unknown))}."})
    return sorted(wanted)


def hash_of_token(plain: str | bytes) -> str:
    return sha256(plain.encode() if isinstance(plain, str) else plain).hexdigest()
