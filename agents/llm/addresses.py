"""Addresses among the arguments of a call: what a text of a stranger may send a run to, or have it tell."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from typing import Any
from urllib.parse import urlsplit

URL = re.compile(r"(?:[a-z][a-z0-9+.-]{0,30}:)?//\S+", re.IGNORECASE)
MAIL = re.compile(r"(?:mailto:)?[^\s@<>\"',;:]+@[^\s@<>\"',;:]+", re.IGNORECASE)
NAMED_MAIL = re.compile(r"[^<>]{0,200}<([^\s<>@]+@[^\s<>@]+)>")
# A name with a dot whose last part has letters alone, or an address of a network; with a port and a path, or without.
HOST = re.compile(
    r"(?:(?:[\w-]{1,63}\.)+[^\W\d_]{2,63}\.?|(?:\d{1,3}\.){3}\d{1,3}|\[[0-9a-f:.]+\]|[\w-]{1,63}(?=:\d))(?::\d{1,5})?(?:[/?#]\S*)?",
    re.IGNORECASE,
)
APART = re.compile(r"[\s,;]+")
LONGEST = 4_000  # characters of a text that is looked at: an address is shorter
PATTERN_BEGINS = "*."


def addresses_in(arguments: Any) -> Iterator[str]:
    """The addresses among these values of JSON: of a URL its host, of a mail the whole address. A text counts if it is an address, or
    a list of them; one that only mentions an address does not."""
    if isinstance(arguments, dict):
        arguments = arguments.values()
    elif isinstance(arguments, str):
        yield from _addresses_of(arguments.strip())
        return
    elif not isinstance(arguments, (list, tuple)):
        return
    for value in arguments:
        yield from addresses_in(value)


def _addresses_of(text: str) -> list[str]:
    if not text or len(text) > LONGEST:
        return []
    if named := NAMED_MAIL.fullmatch(text):
        return [named[1].lower()]
    found = [_address_of(part) for part in APART.split(text) if part]
    return [one for one in found if one] if all(found) else []


def _address_of(text: str) -> str:
    if URL.fullmatch(text):
        try:
            return (urlsplit(text).hostname or text).lower()
        except ValueError:
            return text.lower()
    if MAIL.fullmatch(text):
        return text.lower().removeprefix("mailto:")
    if HOST.fullmatch(text):
        return re.split(r"[/?#]", text.lower())[0].rstrip(".")
    return ""


def stands_in(address: str, texts: Iterable[str]) -> bool:
    """Is this address, as a whole, a part of one of the texts? A text may also be a pattern such as *.example.org."""
    whole = re.compile(rf"(?<![\w.@-]){re.escape(address)}(?![\w@-])(?!\.\w)", re.IGNORECASE)
    return any(
        fnmatch(address, text.lower()) if text.startswith(PATTERN_BEGINS) else whole.search(text) for text in texts
    )


def without(text: str, data: Any) -> str:
    """The text without the texts of this data, which may have been written into it."""
    if isinstance(data, dict):
        data = [*data, *data.values()]
    if isinstance(data, str):
        return text.replace(data, " ") if len(data) > 3 else text
    for value in data if isinstance(data, (list, tuple)) else ():
        text = without(text, value)
    return text
