"""A provider of OAuth 2: its addresses, its scopes in words, and the steps that set up an application there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

CODE, CLIENT = "authorization_code", "client_credentials"


@dataclass(frozen=True, kw_only=True)
class Scope:
    name: str
    words: str  # what it allows, such as "Read your mail"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A part of the provider's addresses that the operator enters."""

    name: str
    label: str
    help_text: str
    default: str = ""
    is_list: bool = False
    is_required: bool = False
    is_number: bool = False


@dataclass(frozen=True, kw_only=True)
class Provider:
    """`hosts` are all that the access token is sent to. `{redirect_uri}` in `setup` is this installation's. Where the addresses
    contain `{name}`, the setting of that name stands there."""

    name: str
    label: str
    authorize_url: str = ""
    token_url: str = ""
    revoke_url: str = ""  # RFC 7009; empty: a person removes the access at `access_page`
    issuer: str = ""
    hosts: Sequence[str] = ()
    scopes: Sequence[Scope] = ()
    always: Sequence[str] = ()  # scopes that each request for consent has, without which nothing is renewed
    of_application: Sequence[str] = ()  # scopes of the grant client_credentials
    parameters: Mapping[str, str] = field(default_factory=dict)  # of the request for consent
    separator: str = " "  # of scopes
    has_pkce: bool = True
    auth_method: str = "client_secret_post"
    signs: bool = False  # the application proves itself by a JWT, and its secret is a private key (`installation`)
    grants: Sequence[str] = (CODE,)
    id_label: str = "Client ID"
    secret_label: str = "Client secret"  # noqa: S105  (a label)
    settings: Sequence[Setting] = ()
    setup: Sequence[str] = ()
    access_page: str = ""  # where a person sees and removes what they have allowed
    docs_url: str = ""

    def words_of(self, scope: str) -> str:
        """What the scope allows, in words; its name where none are known."""
        return next((one.words for one in self.scopes if one.name == scope), scope)

    def at(self, settings: Mapping[str, Any]) -> "Provider":
        """The provider with the addresses that these settings complete."""
        names = {one.name: settings.get(one.name) or one.default for one in self.settings}
        texts = {name: value for name, value in names.items() if isinstance(value, str)}
        given = {name: names[name] for name in ("hosts",) if names.get(name)}
        addresses = {
            name: getattr(self, name).format(**texts) for name in ("authorize_url", "token_url", "revoke_url", "issuer")
        }
        return replace(self, **{**addresses, **_found(settings), **given})


def _found(settings: Mapping[str, Any]) -> dict[str, str]:
    """What discovery has found (`discovery`)."""
    return {
        name: settings[name]
        for name in ("authorize_url", "token_url", "revoke_url", "issuer", "auth_method")
        if settings.get(name)
    }
