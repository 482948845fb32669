"""Secrets that this process knows never stand in what is journaled, logged, shown or sent to a model: MARK stands there.

`redacted` is the one place. What is stored goes through it in `agents.guards.storable` and `agents.exceptions`, what is logged
in `config.logs`, what is shown in `config.web.redacted`, and what a model is sent in `agents.llm.secrets`. Which texts are
secrets, `config.secrets` says of the settings, the environment and the sources.
"""

import json
import re
import time
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

MARK = "[secret]"
SHORTEST = 8  # characters: the letters of a shorter text are everywhere
NESTED = 3  # JSON in a text of JSON, as the arguments of a tool stand in an answer, which stands in a message
# A short word or number is not taken for a secret, even where a setting holds it: plain sentences would lose it.
WORD = re.compile(r"[a-z]{1,15}|[0-9]{1,9}")
TOKEN_PREFIX = "wkf_"  # noqa: S105  (of API tokens: their plain text is stored nowhere, so they are known by their shape)
TOKEN = re.compile(rf"\b{TOKEN_PREFIX}[A-Za-z0-9_-]{{40,}}")

# Names of fields whose values are not shown: narrower than for header fields, as payloads have authors and keys of issues.
SECRET_FIELD = re.compile(
    r"passw|passphrase|secret|token|(?:api|private|signing|access|encryption)[-_ ]?key|credential|authorization|cookie|signature"
    r"|hmac|(?<![a-z])(?:jwt|otp|pin|cvv|cvc)(?![a-z])",
    re.IGNORECASE,
)

KEPT = 60.0  # seconds

# Those of the settings, the environment and the sources, as they are now; `config.wiring` connects it.
look_up: Callable[[], Iterable[str]] = lambda: ()  # noqa: E731  (a port)
_looked_at = float("-inf")
_known: set[str] = set()
_shapes: tuple[str, ...] = ()


def know(*secrets: str) -> None:
    """These are secrets, for as long as this process lives."""
    global _shapes
    new = {secret for secret in secrets if len(secret) >= SHORTEST and not WORD.fullmatch(secret)} - _known
    if new:
        _known.update(new)
        # The longest first: a password is a part of its address.
        shapes = {shape for secret in _known for shape in _shapes_of(secret)}
        _shapes = tuple(sorted(shapes, key=lambda shape: (-len(shape), shape)))


def refresh() -> None:
    """Know the secrets that have come since, at most once a minute. It reads the database."""
    global _looked_at
    if time.monotonic() - _looked_at >= KEPT:
        know(*look_up())
        _looked_at = time.monotonic()


def redacted(text: str) -> str:
    """The text without any secret."""
    for shape in _shapes:
        if shape in text:
            text = text.replace(shape, MARK)
    return TOKEN.sub(MARK, text) if TOKEN_PREFIX in text else text


def redacted_json(value: Any) -> Any:
    """A JSON value without any secret, in keys and texts."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, dict):
        return {redacted(key) if isinstance(key, str) else key: redacted_json(item) for key, item in value.items()}
    return [redacted_json(item) for item in value] if isinstance(value, (list, tuple)) else value


def _shapes_of(secret: str) -> Iterable[str]:
    """As it stands in a text, in JSON, also as a text in JSON, in a traceback, and each of that in HTML."""
    for ensure_ascii in (True, False):
        shape = secret
        for _ in range(NESTED + 1):
            yield shape
            yield escape(shape)
            shape = json.dumps(shape, ensure_ascii=ensure_ascii)[1:-1]
    yield repr(secret)[1:-1]
    yield escape(repr(secret)[1:-1])
