"""Secrets that this process knows never stand in what is journaled, logged, sent to a model or shown: MARK stands there.

Values are redacted, where they are stored (`stored`), logged (`redacted`) or rendered (`shown`), never a finished page, answer or
line: a secret that is a piece of markup or of JSON must not change it. Stored: `agents.guards.storable`, `agents.exceptions`;
logged: `config.logs`; sent to a model: `agents.llm.requests.secrets`; shown: `config.console.parts.html` and `runs.api.shown`. Which texts
are secrets, `config.secrets` finds out from the settings, the environment and the sources.
"""

import json
import re
import time
from collections.abc import Callable, Iterable
from contextvars import ContextVar
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
# What the request that is answered contains, as one text, computed when it is needed; `config.web.request_texts` sets it.
said: ContextVar[Callable[[], str]] = ContextVar("said", default=str)
_looked_at = float("-inf")
_known: set[str] = set()
_secret_of: dict[str, str] = {}  # by shape
_shapes_by_gram: dict[str, tuple[str, ...]] = {}
_touching: set[str] = set()  # shapes that a MARK may be a part of: where one is set, they may appear
_logins: set[str] = set()


def know(*secrets: str) -> None:
    """These are secrets, for as long as this process lives."""
    new = {secret for secret in secrets if len(secret) >= SHORTEST and not WORD.fullmatch(secret)} - _known
    if new:
        _known.update(new)
        for secret in new:
            for shape in dict.fromkeys(_shapes_of(secret)):
                is_new = shape not in _secret_of
                _secret_of[shape] = secret
                if is_new:
                    _index(shape)


def know_logins(*passwords: str) -> None:
    """Passwords that people log in with: secrets, which `shown` leaves as they are."""
    know(*passwords)
    _logins.update(passwords)


def refresh() -> None:
    """Know the secrets that have come since, at most once a minute. It reads the database."""
    global _looked_at
    if time.monotonic() - _looked_at >= KEPT:
        know(*look_up())
        _looked_at = time.monotonic()


def redacted(text: str) -> str:
    """The text without any secret: to be logged or sent to a model."""
    return _without(text, lambda secret: True)


def stored(text: str) -> str:
    """The text to be stored, without secrets except those that the request which is answered contains: an operator entered them."""
    return _without(text, lambda secret: not _is_in(said.get()(), secret))


def shown(text: str, of: str | None = None) -> str:
    """A stored text for a reader, without secrets. `of`: what a text was computed from by an expression of the reader.

    No answer may confirm a guess. So a secret that the request itself contains stays; so does one that is not in `of`, which the
    expression must have put together; and so does a password that people log in with: it is short enough to be guessed, and
    reaches a text that is shown only from a sender who knows it, as what this installation writes of its own went through `stored`.
    """

    def is_hidden(secret: str) -> bool:
        return secret not in _logins and not _is_in(said.get()(), secret) and (of is None or _is_in(of, secret))

    return _without(text, is_hidden)


def redacted_json(value: Any) -> Any:
    """A JSON value without any secret, in keys and texts."""
    return in_json(value, redacted)


def stored_json(value: Any) -> Any:
    """A JSON value to be stored."""
    return in_json(value, stored)


def shown_json(value: Any) -> Any:
    """A stored JSON value for a reader."""
    return in_json(value, shown)


def shown_bytes(body: bytes) -> bytes:
    """A stored body for a reader: what is no text stays as it is."""
    text = body.decode(errors="surrogateescape")
    cleaned = shown(text)
    return body if cleaned == text else cleaned.encode(errors="surrogateescape")


def in_json(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        found: dict[Any, Any] = {}
        for key, item in value.items():
            name = clean(key) if isinstance(key, str) else key
            while name in found:  # both held a secret, or what looks like one: no member may be left out
                name += "+"
            found[name] = in_json(item, clean)
        return found
    return [in_json(item, clean) for item in value] if isinstance(value, (list, tuple)) else value


def in_object(value: Any, clean: Callable[[str], str], *, keys: bool = True) -> Any:
    """A value that is printed next: its texts cleaned, and any other object by its repr if that is not clean."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {
            clean(key) if keys and isinstance(key, str) else key: in_object(item, clean, keys=keys)
            for key, item in value.items()
        }
    if type(value) in (list, tuple):
        return type(value)(in_object(item, clean, keys=keys) for item in value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = repr(value)
    return value if (cleaned := clean(text)) == text else cleaned


def _without(text: str, is_hidden: Callable[[str], bool]) -> str:
    # The longest first: a password is a part of its address.
    for shape in sorted(_possible_in(text), key=lambda shape: (-len(shape), shape)):
        if shape in text and is_hidden(_secret_of[shape]):
            text = text.replace(shape, MARK)
    return TOKEN.sub(MARK, text) if TOKEN_PREFIX in text else text


# Every line that is logged and every answer pays for the search, so it looks at each shape only if they are few. Otherwise: of any
# SHORTEST characters of a text, GRAM begin at a multiple of STEP. So a shape is found by the grams of SHORTEST characters of it, of those
# that are rarest among all shapes: many secrets begin alike.
FEW = 50
GRAM = 4  # characters
STEP = SHORTEST - GRAM + 1
PARTS = 6


def _possible_in(text: str) -> set[str]:
    """Shapes that may be in this text: all that are, and few others."""
    if len(_secret_of) <= FEW:
        return _with_touching(set(filter(text.__contains__, tuple(_secret_of))))
    grams = {text[at : at + GRAM] for at in range(0, len(text) - GRAM + 1, STEP)}
    found = {shape for gram in filter(_shapes_by_gram.__contains__, grams) for shape in _shapes_by_gram[gram]}
    return _with_touching(found)


def _with_touching(found: set[str]) -> set[str]:
    return found | _touching if found else found


def _index(shape: str) -> None:
    last = len(shape) - SHORTEST
    parts = {last * part // (PARTS - 1) for part in range(PARTS)}
    rarest = min(
        sorted(parts), key=lambda part: max(len(_shapes_by_gram.get(gram, ())) for gram in _grams(shape, part))
    )
    for gram in _grams(shape, rarest):
        _shapes_by_gram[gram] = (*_shapes_by_gram.get(gram, ()), shape)
    if (
        any(shape.startswith(MARK[-size:]) or shape.endswith(MARK[:size]) for size in range(1, len(MARK)))
        or MARK in shape
    ):
        _touching.add(shape)


def _grams(shape: str, part: int) -> set[str]:
    return {shape[at : at + GRAM] for at in range(part, part + STEP)}


def _is_in(text: str, secret: str) -> bool:
    return any(shape in text for shape in _shapes_of(secret))


def _shapes_of(secret: str) -> Iterable[str]:
    """The forms of a secret: as it is, in JSON, as a text in JSON, in a traceback, and each of these in HTML."""
    for ensure_ascii in (True, False):
        shape = secret
        for _ in range(NESTED + 1):
            yield shape
            yield escape(shape)
            shape = json.dumps(shape, ensure_ascii=ensure_ascii)[1:-1]
    yield repr(secret)[1:-1]
    yield escape(repr(secret)[1:-1])
