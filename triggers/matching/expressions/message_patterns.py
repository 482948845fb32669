"""Write the filter of a trigger for messages: keywords, hashtags, mentions, a regular expression, channels, threads, senders.

The result is an expression in CEL like any other: a person can read and edit it afterwards. Regular expressions are those of RE2,
whose time is linear in the text.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

META = re.compile(r"[\\.+*?()|\[\]{}^$#&~-]")
PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
        "loop",
        "namespace",
        "null",
        "package",
        "return",
        "true",
        "var",
        "void",
        "while",
    ]
)
# The text before and after a word, in expressions without look-around. RE2's own \b, \W and \s know no letters beyond ASCII.
BEFORE, AFTER, BLANKS = r"(?:^|[^\pL\pN_])", r"(?:[^\pL\pN_]|$)", r"[\s\pZ]+"


class Where(StrEnum):
    ANYWHERE = "anywhere"
    IN_THREAD = "in a thread"
    NOT_IN_THREAD = "not in a thread"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where the messages of one kind have their parts: paths below `event.data`. An empty one: they have no such part."""

    name: str
    label: str
    texts: tuple[str, ...]
    sender: str = ""
    channel: str = ""
    thread: str = ""
    recipients: tuple[str, ...] = ()  # lists of objects with an address: a mention is one of them
    mention: str = ""  # how a mention begins in the text; empty: @ and the name
    automatic: str = ""  # what messages of programs have
    is_automatic_a_flag: bool = False  # it is true or false, else it is there or not


SLACK = Shape(
    name="slack",
    label="Slack (Events API)",
    texts=("event.text",),
    sender="event.user",
    channel="event.channel",
    thread="event.thread_ts",
    mention="<@",
    automatic="event.bot_id",
)
MAIL = Shape(
    name="mail",
    label="Mail",
    texts=("subject", "text"),
    sender="from.address",
    channel="list_id",
    thread="thread_id",
    recipients=("to", "cc"),
    automatic="is_automatic",
    is_automatic_a_flag=True,
)
CHAT = Shape(
    name="chat", label="Another chat", texts=("text",), sender="user_name", channel="channel_name", thread="thread_id"
)
SHAPES = {shape.name: shape for shape in (SLACK, MAIL, CHAT)}


@dataclass(frozen=True, kw_only=True)
class Part:
    """A condition, and the paths that it reads."""

    paths: Sequence[str]
    test: str


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """The messages that are wanted: of each part that has values, one of them must be there."""

    keywords: Sequence[str] = ()
    hashtags: Sequence[str] = ()
    mentions: Sequence[str] = ()
    regex: str = ""
    channels: Sequence[str] = ()
    threads: Sequence[str] = ()
    where: Where = Where.ANYWHERE
    senders: Sequence[str] = ()  # *@example.com: each at that domain
    by_people: bool = False  # none that a program has sent


class InvalidPattern(ValueError):
    """`errors` has one message for each field."""

    def __init__(self, errors: dict[str, str]) -> None:
        super().__init__("; ".join(f"{name}: {error}" for name, error in errors.items()))
        self.errors = errors


def expression(shape: Shape, pattern: Pattern) -> str:
    """The filter in CEL; empty if the pattern wants every message. Raises InvalidPattern."""
    _check(shape, pattern)
    parts = [
        Part(paths=(shape.channel,), test=_is_one_of(shape.channel, pattern.channels)),
        Part(paths=(shape.sender,), test=_is_one_of(shape.sender, pattern.senders)),
        Part(paths=(shape.thread,), test=_is_one_of(shape.thread, pattern.threads)),
        Part(paths=_parents(shape.thread), test=_is_where(shape, pattern.where)),
        Part(
            paths=_parents(shape.automatic), test=_is_by_person(shape) if pattern.by_people and shape.automatic else ""
        ),
        Part(paths=shape.texts, test=_has_text(shape, word_regex(pattern.keywords))),
        Part(paths=shape.texts, test=_has_text(shape, hashtag_regex(pattern.hashtags))),
        _mentions(shape, pattern.mentions),
        Part(paths=shape.texts, test=_has_text(shape, pattern.regex)),
    ]
    wanted = [part for part in parts if part.test]
    exist = dict.fromkeys(step for part in wanted for path in part.paths for step in [*_parents(path), path] if step)
    return " && ".join([*(f"has({_at(path)})" for path in exist), *(part.test for part in wanted)])


def word_regex(words: Sequence[str]) -> str:
    """Each of these words or phrases, as whole words, in any case."""
    return _regex(words, _word)


def hashtag_regex(tags: Sequence[str]) -> str:
    return _regex([tag.removeprefix("#") for tag in tags], lambda tag: f"{BEFORE}#{_escaped(tag)}{AFTER}")


def literal(text: str) -> str:
    """A string of CEL; raw where that is easier to read, as for most regular expressions."""
    if "\\" in text and text.isprintable():
        for quote in ('"', "'"):
            if quote not in text:
                return f"r{quote}{text}{quote}"
    return json.dumps(text, ensure_ascii=False).replace("\\/", "/")


def _at(path: str) -> str:
    return f"event.data.{path}"


def _parents(path: str) -> tuple[str, ...]:
    """a and a.b for a.b.c: `has` raises an error where one of them is missing."""
    steps = path.split(".")
    return tuple(".".join(steps[:count]) for count in range(1, len(steps)))


def _is_one_of(path: str, values: Sequence[str]) -> str:
    """Equal to one; a value that begins with * stands for all that end with the rest of it."""
    ends = [value[1:] for value in values if value.startswith("*")]
    exact = [value for value in values if not value.startswith("*")]
    tests = [f"{_at(path)}.endsWith({literal(end)})" for end in ends]
    if len(exact) == 1:
        tests.insert(0, f"{_at(path)} == {literal(exact[0])}")
    elif exact:
        tests.insert(0, f"{_at(path)} in [{', '.join(map(literal, exact))}]")
    return _any(tests)


def _is_where(shape: Shape, where: Where) -> str:
    exists = f"has({_at(shape.thread)})"
    return {Where.ANYWHERE: "", Where.IN_THREAD: exists, Where.NOT_IN_THREAD: f"!{exists}"}[where]


def _is_by_person(shape: Shape) -> str:
    exists = f"has({_at(shape.automatic)})"
    return f"!({exists} && {_at(shape.automatic)})" if shape.is_automatic_a_flag else f"!{exists}"


def _has_text(shape: Shape, regex: str) -> str:
    return _any([f"{_at(path)}.matches({literal(regex)})" for path in shape.texts]) if regex else ""


def _mentions(shape: Shape, names: Sequence[str]) -> Part:
    if shape.recipients:
        tests = [f"{_at(path)}.exists(one, {_equals('one.address', names)})" for path in shape.recipients if names]
        return Part(paths=shape.recipients, test=_any(tests))
    if shape.mention:
        tests = [f"{_at(path)}.contains({literal(shape.mention + name)})" for path in shape.texts for name in names]
        return Part(paths=shape.texts, test=_any(tests))
    regex = _regex([name.removeprefix("@") for name in names], lambda name: f"{BEFORE}@{_escaped(name)}{AFTER}")
    return Part(paths=shape.texts, test=_has_text(shape, regex))


def _equals(name: str, values: Sequence[str]) -> str:
    return f"{name} == {literal(values[0])}" if len(values) == 1 else f"{name} in [{', '.join(map(literal, values))}]"


def _any(tests: Sequence[str]) -> str:
    return f"({' || '.join(tests)})" if len(tests) > 1 else "".join(tests)


def _regex(words: Sequence[str], one: Callable[[str], str]) -> str:
    found = [one(word) for word in words]
    return f"(?i){found[0]}" if len(found) == 1 else f"(?i)(?:{'|'.join(found)})" if found else ""


def _word(word: str) -> str:
    """The pattern of a word, with word boundaries where it begins or ends with a letter or digit."""
    inner = BLANKS.join(_escaped(part) for part in word.split())
    return (BEFORE if re.match(r"\w", word) else "") + inner + (AFTER if re.search(r"\w$", word) else "")


def _escaped(text: str) -> str:
    return META.sub(lambda found: "\\" + found.group(), text)


def _check(shape: Shape, pattern: Pattern) -> None:
    errors = {}
    for name, path in (("channels", shape.channel), ("senders", shape.sender), ("threads", shape.thread)):
        if getattr(pattern, name) and not path:
            errors[name] = "messages of this kind have none: name the path where they stand"
    if pattern.where is not Where.ANYWHERE and not shape.thread:
        errors["where"] = "messages of this kind have no threads: name the path where they stand"
    for name in ("keywords", "hashtags", "mentions", "channels", "threads", "senders"):
        if not all(value.strip("*#@ ") and value.isprintable() for value in getattr(pattern, name)):
            errors[name] = "must be words of printable characters"
    wrong = [path for path in _paths(shape) if path and not is_path(path)]
    if wrong:
        errors["shape"] = f"{wrong[0]!r} is no path such as message.text"
    if errors:
        raise InvalidPattern(errors)


def is_path(text: str) -> bool:
    """Whether CEL can follow the path: names joined by dots, none of them a keyword of CEL."""
    return bool(PATH.fullmatch(text)) and not RESERVED & set(text.split("."))


def _paths(shape: Shape) -> Sequence[str]:
    return [*shape.texts, shape.sender, shape.channel, shape.thread, shape.automatic, *shape.recipients]
