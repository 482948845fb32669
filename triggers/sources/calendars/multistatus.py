"""The answers of a WebDAV server (RFC 4918, 13), read within bounds and without any of what makes XML dangerous: no document type, so
no entities of the server's own, and a limited number of elements."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit
from xml.parsers import expat

DAV, CALDAV, CALENDARSERVER = "DAV:", "urn:ietf:params:xml:ns:caldav", "http://calendarserver.org/ns/"
MOST_ELEMENTS = 100_000
MOST_DEPTH = 50
SEPARATOR = " "  # between a namespace and a name


class Unreadable(ValueError):
    """The answer is no XML, or not of the kind that was expected."""


@dataclass(kw_only=True)
class Element:
    name: str  # such as "DAV: href"
    pieces: list[str] = field(default_factory=list)
    children: list["Element"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def all(self, namespace: str, name: str) -> Iterator["Element"]:
        return (one for one in self.children if one.name == f"{namespace}{SEPARATOR}{name}")

    def first(self, namespace: str, name: str) -> "Element | None":
        return next(self.all(namespace, name), None)

    def text_of(self, namespace: str, name: str) -> str:
        found = self.first(namespace, name)
        return found.text.strip() if found else ""

    def has(self, namespace: str, name: str) -> bool:
        return self.first(namespace, name) is not None


@dataclass(frozen=True, kw_only=True)
class Resource:
    """What an answer has of one resource. `status` is its own, 0 if its properties have one each (`statuses`); `properties` are those that
    it has."""

    href: str  # as the server writes it
    path: str
    status: int
    statuses: frozenset[int]
    properties: Element


@dataclass(frozen=True, kw_only=True)
class Multistatus:
    resources: list[Resource]
    sync_token: str = ""


def path_of(href: str) -> str:
    """The same for all ways to write an address of one server: servers differ in what they escape, and in whether they name themselves."""
    try:
        return unquote(urlsplit(href.strip()).path)
    except ValueError:
        raise Unreadable("an address in the answer is none") from None


def multistatus(body: bytes) -> Multistatus:
    """Raises Unreadable."""
    root = tree(body)
    if root.name != f"{DAV}{SEPARATOR}multistatus":
        raise Unreadable("the answer is no multistatus of WebDAV")
    return Multistatus(
        resources=[_resource(one) for one in root.all(DAV, "response") if one.has(DAV, "href")],
        sync_token=root.text_of(DAV, "sync-token"),
    )


def tree(body: bytes) -> Element:
    """Raises Unreadable."""
    building = _Building()
    parser = expat.ParserCreate(namespace_separator=SEPARATOR)
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = building.refuse
    parser.StartElementHandler = building.start
    parser.EndElementHandler = building.end
    parser.CharacterDataHandler = building.text
    try:
        parser.Parse(body, True)
    except (expat.ExpatError, LookupError, ValueError) as error:  # LookupError: an encoding that is not known
        raise Unreadable(str(error) or type(error).__name__) from None
    [root] = building.top.children
    return root


class _Building:
    def __init__(self) -> None:
        self.top = Element(name="")
        self.open = [self.top]
        self.count = 0

    def refuse(self, *_: Any) -> None:
        raise Unreadable("the answer has a document type")

    def start(self, name: str, _: Any) -> None:
        self.count += 1
        if self.count > MOST_ELEMENTS or len(self.open) > MOST_DEPTH:
            raise Unreadable("the answer has too many elements")
        element = Element(name=name)
        self.open[-1].children.append(element)
        self.open.append(element)

    def end(self, _: str) -> None:
        self.open.pop()

    def text(self, piece: str) -> None:
        self.open[-1].pieces.append(piece)


def _resource(response: Element) -> Resource:
    properties, groups = Element(name=""), list(response.all(DAV, "propstat"))
    for group in groups:
        if 200 <= _status(group) < 300:
            for each in group.all(DAV, "prop"):
                properties.children += each.children
    href = response.text_of(DAV, "href")
    return Resource(
        href=href,
        path=path_of(href),
        status=_status(response),
        statuses=frozenset(map(_status, groups)),
        properties=properties,
    )


def _status(of: Element) -> int:
    words = of.text_of(DAV, "status").split()  # such as HTTP/1.1 404 Not Found
    return int(words[1]) if len(words) > 1 and words[1].isdecimal() and len(words[1]) == 3 else 0
