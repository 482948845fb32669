"""Identity tokens (OpenID Connect): a sender's proof of who it is, signed by its provider, for one audience and for a time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from runs.api.strict_json import Unreadable, parse_json
from triggers.sources.http.answers import Unavailable
from triggers.sources.webhooks.proof import TOLERANCE, Rejected
from triggers.sources.webhooks.published_keys import PublishedKeys, fetched

if TYPE_CHECKING:
    from joserfc.jwk import KeySet

LONGEST = 16_384  # characters of a token
ALGORITHMS = ("RS256",)


@dataclass(frozen=True, kw_only=True)
class Issuer:
    """Who signs: the names under which it may sign, and the address of its keys."""

    names: tuple[str, ...]
    keys: str


class KeySets(PublishedKeys["KeySet"]):
    """The keys of issuers. They are read again within an hour, so that one that was withdrawn proves nothing for longer."""

    KEPT_FOR = 3600.0
    whose = "the issuer of tokens"

    def read(self, content: bytes) -> "KeySet":
        # Here and not above, as most processes verify no token.
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        try:
            return KeySet.import_key_set(cast(Any, parse_json(content)))
        except (JoseError, Unreadable, KeyError, TypeError, AttributeError) as error:
            raise ValueError(str(error)) from None


def get(address: str) -> bytes:
    """The keys of an issuer. Unavailable: it does not give them, so that the sender tries again."""
    status, body = fetched(address, "the issuer of tokens")
    if status != 200:
        raise Unavailable(why=f"the issuer of tokens answers {status} for its keys")
    return body


KEY_SETS = KeySets(lambda address: get(address))


def claims_of(token: bytes, issuer: Issuer, audiences: Sequence[str], now: datetime) -> Mapping[str, Any]:
    """The claims of a token that this issuer has signed for one of these audiences, and that is valid now. Rejected: it is no such
    token; Unavailable: the keys of the issuer cannot be fetched."""
    from joserfc import jwt
    from joserfc.errors import ExpiredTokenError, JoseError
    from joserfc.jws import extract_compact

    if not token or len(token) > LONGEST:
        raise Rejected("the token is missing or too long")
    try:
        kid = extract_compact(token).headers().get("kid")
        keys = KEY_SETS.get(issuer.keys, holds=partial(_has, kid))
        claims = jwt.decode(token, keys, list(ALGORITHMS)).claims
        jwt.JWTClaimsRegistry(
            now=int(now.timestamp()),
            leeway=int(TOLERANCE.total_seconds()),
            iss={"essential": True, "values": list(issuer.names)},
            aud={"essential": True, "values": list(audiences)},
            exp={"essential": True},
            iat={"essential": True},
        ).validate(claims)
    except ExpiredTokenError:
        raise Rejected("the token has expired") from None
    except (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Rejected(f"the token proves nothing: {type(error).__name__}: {str(error)[:100]}") from None
    return claims


def _has(kid: Any, keys: "KeySet") -> bool:
    return any(key.kid == kid for key in keys)
