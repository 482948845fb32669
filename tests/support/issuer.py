"""An issuer of identity tokens, with keys of its own."""

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from tests.support.deliveries import NOW
from tests.support.rsa_keys import pem
from triggers.sources.http.answers import Unavailable


@cache
def key_of(kid: str) -> RSAKey:
    return RSAKey.import_key(pem(kid), {"kid": kid, "use": "sig"})


class TokenIssuer:
    """`fetched` has the addresses at which its keys were asked for."""

    def __init__(self) -> None:
        self.keys = [key_of("first")]
        self.is_away = False
        self.fetched: list[str] = []

    def get(self, address: str) -> bytes:
        self.fetched.append(address)
        if self.is_away:
            raise Unavailable
        return json.dumps(KeySet([*self.keys]).as_dict()).encode()

    def turn(self, kid: str) -> None:
        """Sign with another key, and publish it alone."""
        self.keys = [key_of(kid)]

    def token(self, claims: Mapping[str, Any], *, at: datetime = NOW, **header: str) -> str:
        """Issued a minute ago, for an hour; a claim that is None is left out."""
        issued = int(at.timestamp()) - 60
        given = {"iat": issued, "exp": issued + 3600, **claims}
        signed = {name: value for name, value in given.items() if value is not None}
        return jwt.encode({"alg": "RS256", "kid": self.keys[0].kid, **header}, signed, self.keys[0])
