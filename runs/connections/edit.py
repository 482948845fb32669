"""Create, change and remove connections: what the console calls. Each edit is audited.

A change of where secrets go (the client, the addresses, the hosts) ends what is connected and needs the secret again: otherwise a person
who may edit could have tokens sent to a host of their own.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import F

from agents.guards.atomic import not_in_atomic_body
from runs.connections.catalog import providers
from runs.connections.installation import LONGEST_KEY, PERMISSION, wrong_with_key
from runs.connections.protocol import ProviderError, metadata
from runs.connections.provider import CODE, Provider
from runs.connections.sealed import sealed
from runs.connections.tokens import NO_TOKENS
from runs.exceptions import IllegalState
from runs.models import Connection, audit
from runs.ports import ports
from runs.users import user_named

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,99}")
HOST = re.compile(r"(\*\.)?[a-z0-9.-]{1,253}(:[0-9]{1,5})?")
LONGEST = 2000  # characters of a field
FOUND = {  # by discovery: the name in the metadata of an issuer
    "authorize_url": "authorization_endpoint",
    "token_url": "token_endpoint",
    "revoke_url": "revocation_endpoint",
}


@not_in_atomic_body
def create_connection(
    *,
    name: str,
    provider: str,
    client_id: str,
    client_secret: str,
    by: str,
    grant: str = CODE,
    owner: str = "",
    scopes: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
) -> Connection:
    """ValidationError names the field and the fix. An issuer's metadata are read here."""
    faults: dict[str, str] = {}
    if not NAME.fullmatch(name):
        faults["name"] = "Use small letters, digits, hyphens and underscores, such as gmail."
    found = providers().get(provider)
    if found is None:
        raise ValidationError({**faults, "provider": f"There is no provider {provider!r}."})
    if grant not in found.grants:
        faults["grant"] = f"{found.label} has no such grant."
    user = user_named(owner) if owner else None
    if owner and user is None:
        faults["owner"] = "There is no such user. Leave it empty if it belongs to the installation."
    elif owner and (sources := ports.sources_of_connection(name)):
        # A source that was there first, perhaps another person's, would read this account.
        faults["name"] = (
            f"Source {', '.join(sources)} names it already. Choose another name, or change the source first."
        )
    _check_client(found, client_id, client_secret, grant, faults)
    if faults:
        raise ValidationError(faults)
    connection = Connection(
        name=name,
        provider=provider,
        grant=grant,
        owner=owner,
        owner_user_id=user.pk if user else None,
        client_id=client_id,
        client_secret=_sealed(client_secret),
        scopes=_scopes(scopes, found),
        settings=complete(found, settings or {}, grant),
    )
    try:
        with transaction.atomic():
            connection.save()
            audit.record(by, "create", connection, name=name, provider=provider, owner=owner, scopes=connection.scopes)
    except IntegrityError:
        raise ValidationError({"name": "Another connection has this name."}) from None
    return connection


@not_in_atomic_body
def change_connection(
    connection_id: int,
    *,
    by: str,
    client_id: str,
    client_secret: str,
    scopes: Sequence[str],
    settings: Mapping[str, Any],
) -> Connection:
    """Without a new secret, the old one stays where it went before. Other scopes are granted at the next consent."""
    before = Connection.objects.get(pk=connection_id)
    provider = providers()[before.provider]
    completed, named = complete(provider, settings, before.grant), _scopes(scopes, provider)
    if completed.get("token_url") == before.settings.get("token_url") and "auth_method" in before.settings:
        completed.setdefault(
            "auth_method", before.settings["auth_method"]
        )  # no field of the form: discovery has found it
    goes_elsewhere = client_id != before.client_id or _places(completed) != _places(before.settings)
    faults: dict[str, str] = {}
    if goes_elsewhere and before.client_secret is not None and not client_secret:
        faults["client_secret"] = "Enter the secret again: the client or its addresses have changed."  # noqa: S105  (a text)
    _check_client(provider, client_id, client_secret, before.grant, faults, is_kept=before.client_secret is not None)
    if faults:
        raise ValidationError(faults)
    ended = {**NO_TOKENS, "state": Connection.State.NEW, "reason": "", "granted": []} if goes_elsewhere else {}
    secret = {"client_secret": _sealed(client_secret)} if client_secret else {}
    with transaction.atomic():
        changed = Connection.objects.filter(pk=connection_id, revision=before.revision).update(
            client_id=client_id,
            scopes=named,
            settings=completed,
            # What was wrong with the client may be right now.
            retry_at=None,
            revision=F("revision") + 1,
            **secret,
            **{name: value for name, value in ended.items() if name != "retry_at"},
        )
        if not changed:
            raise IllegalState("the connection has changed meanwhile: try again", before.state)
        if goes_elsewhere:  # the code of a consent that was asked for before must not go there
            before.pending_consents.all().delete()
        old = {"client_id": before.client_id, "scopes": before.scopes, "settings": before.settings}
        new = {"client_id": client_id, "scopes": named, "settings": completed}
        audit.record(
            by,
            "change",
            before,
            secret_changed=bool(client_secret),
            ended=goes_elsewhere,
            **audit.changes(old, new),
        )
    return Connection.objects.get(pk=connection_id)


@not_in_atomic_body
def remove_connection(connection_id: int, *, by: str) -> None:
    """Its tokens go with it; what the provider allows stays until it is revoked there."""
    with transaction.atomic():
        connection = Connection.objects.select_for_update().get(pk=connection_id)
        audit.record(by, "remove", connection, name=connection.name, owner=connection.owner)
        connection.delete()


def complete(provider: Provider, given: Mapping[str, Any], grant: str) -> dict[str, Any]:
    """The settings of a connection, with what discovery finds. Raises ValidationError."""
    faults: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for setting in provider.settings:
        value = given.get(setting.name) or setting.default
        if setting.is_list:
            hosts = value.split() if isinstance(value, str) else list(value)
            if not hosts or not all(HOST.fullmatch(host) for host in hosts):
                faults[setting.name] = "Enter hosts such as api.example.com or *.example.org, separated by spaces."
            settings[setting.name] = hosts
        elif value:
            text = str(value).strip()
            if setting.name in ("issuer", *FOUND) and (wrong := wrong_with(text)):
                faults[setting.name] = wrong
            elif setting.is_number and not re.fullmatch(r"[0-9]{1,20}", text):
                faults[setting.name] = "Enter a number."
            elif len(text) > LONGEST or not (setting.name in ("issuer", *FOUND) or re.fullmatch(r"[\w.-]+", text)):
                faults[setting.name] = "Use letters, digits, dots and hyphens."
            settings[setting.name] = text
        elif setting.is_required:
            faults[setting.name] = "Enter it."
    if faults:
        raise ValidationError(faults)
    if "issuer" in settings:
        _discover(settings)
    needed = ("token_url", *(("authorize_url",) if grant == CODE else ()))
    ready = provider.at(settings)
    if missing := [name for name in needed if not getattr(ready, name)]:
        raise ValidationError({missing[0]: "Enter it, or the issuer whose metadata have it."})
    return settings


def _discover(settings: dict[str, Any]) -> None:
    if all(settings.get(name) for name in FOUND):
        return
    try:
        found = metadata(settings["issuer"])
    except ProviderError as error:
        raise ValidationError({"issuer": f"Its metadata cannot be read: {error}."}) from None
    for name, said in FOUND.items():
        value = found.get(said)
        if not settings.get(name) and isinstance(value, str) and not wrong_with(value):
            settings[name] = value
    methods = found.get("token_endpoint_auth_methods_supported")
    if isinstance(methods, list) and "client_secret_basic" not in methods and "client_secret_post" in methods:
        settings["auth_method"] = "client_secret_post"


def wrong_with(url: str) -> str:
    """Why secrets must not be sent to this address; empty: they may."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "It is no address."
    is_inside = parts.scheme == "http" and host in ("127.0.0.1", "::1")
    if not host or (parts.scheme != "https" and not is_inside):
        return "It must begin with https://."
    if (
        parts.username
        or parts.fragment
        or not url.isascii()
        or not url.isprintable()
        or " " in url
        or len(url) > LONGEST
    ):
        return "It must be a plain address, without a user and without a fragment."
    return ""


def _check_client(
    provider: Provider, client_id: str, secret: str, grant: str, faults: dict[str, str], *, is_kept: bool = False
) -> None:
    """`is_kept`: without a new secret there is an old one."""
    if not client_id or not client_id.isprintable() or len(client_id) > LONGEST:
        faults["client_id"] = "Enter the client id of the application at the provider."
    if not secret and not is_kept and grant != CODE:
        faults["client_secret"] = "An application without a person proves itself by its secret: enter it."  # noqa: S105
    if secret and provider.signs:
        if wrong := "It is too long." if len(secret) > LONGEST_KEY else wrong_with_key(secret):
            faults["client_secret"] = wrong
    elif secret and (not secret.isprintable() or not secret.isascii() or len(secret) > LONGEST):
        faults["client_secret"] = "It contains characters that no secret has."  # noqa: S105


def _scopes(scopes: Sequence[str], provider: Provider) -> list[str]:
    if wrong := [
        one for one in scopes if not one.isascii() or not one.isprintable() or " " in one or len(one) > LONGEST
    ]:
        raise ValidationError({"scopes": f"{wrong[0][:50]!r} is no scope."})
    if provider.signs and (wrong := [one for one in scopes if not PERMISSION.fullmatch(one)]):
        # One that is left out would not narrow the token, but give it all that the app has.
        raise ValidationError(
            {"scopes": f"{wrong[0][:50]!r} is no permission. Write it such as issues:read or deployments:write."}
        )
    return list(dict.fromkeys(scopes))


def _places(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in settings.items() if value}


def _sealed(secret: str) -> bytes | None:
    try:
        return sealed(secret)
    except ImproperlyConfigured as missing:
        raise ValidationError({"client_secret": f"{missing}."}) from None
