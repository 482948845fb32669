"""Addresses among the arguments of a tool call: an attacker's text may choose where a run connects or sends data."""

import json
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

URL = re.compile(r"(?:[a-z][a-z0-9+.-]{0,30}:)?[/\\]{2}\S+", re.IGNORECASE)
# A text that begins like this is an address up to its end, even with blanks, which clients encode.
BEGINS_URL = re.compile(r"[a-z][a-z0-9+.-]{0,30}:[/\\]{2}\S|(?:https?|wss?|ftps?|mailto):\S", re.IGNORECASE)
MAIL = re.compile(r"(?:mailto:)?[^\s@<>\"',;:]+@[^\s@<>\"',;:]+", re.IGNORECASE)
NAMED = re.compile(r"<([^\s<>@]{1,200}@[^\s<>@]{1,255})>")  # a mail behind a name
LONGEST_NAME = 200
# A name with a dot whose last part has letters alone, or an address of a network; with a port and a path, or without.
HOST = re.compile(
    r"(?:(?:[\w-]{1,63}\.)+(?:[^\W\d_]{2,63}|xn--[\w-]{1,59})\.?|(?:\d{1,3}\.){3}\d{1,3}|\[[0-9a-f:.]+\]|localhost"
    r"|(?=[\w-]*[a-z])[\w-]{1,63}(?=:\d))(?::\d{1,5})?(?:[/?#]\S*)?",
    re.IGNORECASE,
)
PART = re.compile(r"[^\s,;]+")
WORD = re.compile(r"\S+")
NAME = re.compile(r"[\w.@-]+")  # as `stands_in` bounds an address
PATTERN_BEGINS = "*."


def addresses_in(arguments: Any) -> Iterator[str]:
    """The addresses among these values of JSON: of a URL its host, of a mail the whole address. A text counts if it is an address, or
    a list of them, or begins with a URL; one that only mentions an address does not."""
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
    if BEGINS_URL.match(text):
        found = [_address_of(word.rstrip(",;")) for word in WORD.findall(text)]
        return [one for one in found if one] or [text.lower()]
    *names, rest = NAMED.split(text)
    if any(len(name) > LONGEST_NAME for name in names[::2]):
        return []
    found = [mail.lower() for mail in names[1::2]]
    found += [
        mail
        for name in names[::2]
        for part in PART.findall(name)
        if MAIL.fullmatch(part) and (mail := _address_of(part))
    ]
    for part in PART.finditer(rest):
        address = _address_of(part[0])
        if not address:
            return []
        found.append(address)
    return found


def _address_of(text: str) -> str:
    if URL.fullmatch(text):
        if "\\" in text:  # some clients treat a backslash as a slash, others do not
            return text.lower()
        try:
            return (urlsplit(text).hostname or text).lower()
        except ValueError:
            return text.lower()
    if MAIL.fullmatch(text):
        return text.lower().removeprefix("mailto:")
    if HOST.fullmatch(text):
        return re.split(r"[/?#]", text.lower())[0].rstrip(".")
    try:
        return str(ip_address(text)) if ":" in text else ""
    except ValueError:
        return ""


def stands_in(address: str, texts: Iterable[str]) -> bool:
    """Is this address, as a whole, a part of one of the texts? A text may also be a pattern such as *.example.org."""
    whole = re.compile(rf"(?<![\w.@-]){re.escape(address)}(?![\w@-])(?!\.\w)", re.IGNORECASE)
    return any(
        fnmatch(address, text.lower()) if text.startswith(PATTERN_BEGINS) else whole.search(text) for text in texts
    )


def without(text: str, data: Any) -> str:
    """The text without the parts that may come from this data: the data's texts, and words that occur in them."""
    written = json.dumps(data, ensure_ascii=False, default=str).lower()
    return NAME.sub(lambda name: " " if name[0].lower().strip(".-") in written else name[0], _without_texts(text, data))


def _without_texts(text: str, data: Any) -> str:
    if isinstance(data, dict):
        data = [*data, *data.values()]
    if isinstance(data, str):
        return text.replace(data, " ") if len(data) > 3 else text
    for value in data if isinstance(data, (list, tuple)) else ():
        text = _without_texts(text, value)
    return text
