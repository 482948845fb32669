"""Where an expression is wrong, why, and the fix. Pure and without Django, because the evaluator process imports it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from triggers.matching.expressions.tokens import (
    CLOSING,
    COMPREHENSIONS,
    ENVELOPE,
    FIELDS,
    OPENING,
    Token,
    bound_names,
    placed,
)

# Those of the library; a test holds the list against it.
FUNCTIONS = COMPREHENSIONS | frozenset(
    [
        "has",
        "size",
        "contains",
        "startsWith",
        "endsWith",
        "matches",
        "int",
        "uint",
        "double",
        "string",
        "bytes",
        "type",
        "dyn",
        "timestamp",
        "duration",
        "getFullYear",
        "getMonth",
        "getDate",
        "getDayOfMonth",
        "getDayOfWeek",
        "getDayOfYear",
        "getHours",
        "getMinutes",
        "getSeconds",
        "getMilliseconds",
    ]
)
WORDS = {
    "and": "&&",
    "or": "||",
    "not": "!",
    "is": "==",
    "True": "true",
    "False": "false",
    "None": "null",
    "nil": "null",
}
POSITION = re.compile(r"<input>:(\d+):(\d+): *(.*)")
SHOWN = 40  # characters of the marked text in a message


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`reason` names the fault and the fix; `at` and `length` mark its place in the expression `text`."""

    text: str
    reason: str
    at: int
    length: int

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.at) + 1

    @property
    def column(self) -> int:
        return self.at - (self.text.rfind("\n", 0, self.at) + 1) + 1

    @property
    def marked(self) -> str:
        return self.text[self.at : self.at + self.length]

    def __str__(self) -> str:
        marked = self.marked if len(self.marked) <= SHOWN else f"{self.marked[:SHOWN]}…"
        at = f", at {marked!r}" if marked else ", at the end" if self.at >= len(self.text) else ""
        return f"line {self.line}, column {self.column}{at}: {self.reason}"


def fault_at(text: str, token: Token, reason: str) -> Fault:
    return Fault(text=text, reason=reason, at=token.at, length=len(token.text))


def syntax_fault(text: str, said: str) -> Fault | None:
    """The fault in an expression that the library does not parse; `said`: the library's message. None: the place is
    unknown.
    """
    tokens = placed(text)
    return next(_habits(text, tokens), None) or next(_brackets(text, tokens), None) or _from_library(text, tokens, said)


def name_fault(text: str) -> Fault | None:
    """The first function or field of `event` that does not exist: its use would be an error for every event."""
    tokens = placed(text)
    bound = bound_names([(token.kind, token.text) for token in tokens])
    followed = zip([None, *tokens], tokens, [*tokens[1:], None], [*tokens[2:], None, None], strict=False)
    for before, token, after, further in followed:
        if token.kind != "name":
            continue
        if after and after.is_operator("(") and token.text not in FUNCTIONS and token.text != "in":
            return fault_at(text, token, f"is no function{_instead(token.text, FUNCTIONS)}")
        is_event = token.text == "event" and "event" not in bound and not (before and before.is_operator("."))
        is_field = is_event and after and after.is_operator(".") and further and further.kind == "name"
        if is_field and further and further.text not in (*ENVELOPE, "data"):
            near = _instead(further.text, (*ENVELOPE, "data")) or f"; use event.data.{further.text}, or {FIELDS}"
            return fault_at(text, further, f"is no field of event{near}")
    return None


def slow_list(text: str) -> Fault | None:
    """The first `filter` or `map`: the library copies the list for each element."""
    tokens = placed(text)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        is_call = before and before.is_operator(".") and after and after.is_operator("(")
        if after and is_call and token.text in ("filter", "map"):
            inner = text[after.end : _end_of_call(tokens, after)].strip() if token.text == "filter" else ""
            inner = inner if 0 < len(inner) <= SHOWN else "x, …"
            return fault_at(
                text, token,
                f"builds a list, which takes quadratic time: write exists({inner}) for at least one element, "
                f"exists_one({inner}) for exactly one, or decide in the agent",
            )  # fmt: skip
    return None


def _end_of_call(tokens: Sequence[Token], opening: Token) -> int:
    """Where the bracket that closes this one stands."""
    depth = 0
    for token in tokens[tokens.index(opening) :]:
        depth += token.is_operator(*OPENING) - token.is_operator(*CLOSING)
        if depth == 0:
            return token.at
    return opening.end


def unknown_name(text: str, name: str) -> Fault | None:
    """The place of a variable that does not exist."""
    found = next((token for token in placed(text) if token.kind == "name" and token.text == name), None)
    reason = f"use {WORDS[name]}" if name in WORDS else f"is unknown; use event ({FIELDS})"
    return fault_at(text, found, reason) if found else None


def _instead(name: str, known: Sequence[str] | frozenset[str]) -> str:
    by_lower = {one.lower().replace("_", ""): one for one in sorted(known)}
    near = get_close_matches(name.lower().replace("_", ""), by_lower, n=1, cutoff=0.75)
    return f"; did you mean {by_lower[near[0]]}?" if near else ""


def _habits(text: str, tokens: Sequence[Token]) -> Iterator[Fault]:
    """Operators of other languages, and strings that do not end."""
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.is_operator('"', "'"):
            yield fault_at(text, token, "this string has no closing quote")
        elif token.is_operator("=", "&", "|"):
            yield fault_at(text, token, f"use {token.text * 2}" + (" to compare" if token.text == "=" else ""))
        elif token.is_operator("`", "“", "”", "‘", "’", "„"):
            yield fault_at(text, token, "write strings in straight quotes: \"…\" or '…'")
        elif token.kind == "name" and token.text in WORDS and not (before and before.is_operator(".")):
            yield fault_at(text, token, f"use {WORDS[token.text]}")


def _brackets(text: str, tokens: Sequence[Token]) -> Iterator[Fault]:
    opened: list[Token] = []
    for token in tokens:
        if token.is_operator(*OPENING):
            opened.append(token)
        elif token.is_operator(*CLOSING):
            is_pair = opened and OPENING.index(opened[-1].text) == CLOSING.index(token.text)
            if not is_pair:
                yield fault_at(text, token, "no such bracket is open here")
                return
            opened.pop()
    if opened:
        yield fault_at(text, opened[-1], "this bracket is never closed")


def _from_library(text: str, tokens: Sequence[Token], said: str) -> Fault | None:
    found = POSITION.search(said)
    if not found:
        return None
    line, column, reason = int(found[1]), int(found[2]), found[3]
    lines = text.split("\n")
    at = sum(len(each) + 1 for each in lines[: line - 1]) + max(column - 1, 0)
    token = next((token for token in tokens if token.at <= at < token.end), None)
    if token is None:
        return Fault(text=text, reason="something is missing here", at=min(at, len(text)), length=0)
    is_syntax = reason.lower().startswith("syntax error")
    return fault_at(text, token, "is not expected here" if is_syntax else reason)
