"""The tokens of a CEL expression, and what they say of it without a parser. Pure and without Django, because the evaluator
process imports it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

ENVELOPE = ("id", "type", "source", "subject", "time")
FIELDS = f"{', '.join(ENVELOPE)}, data"

TOKEN = re.compile(
    r'''
    (?P<space>   \s+ | //[^\n]* )
  | (?P<string>  [bB]?[rR][bB]?(?: """.*?""" | \'\'\'.*?\'\'\' | "[^"\n]*" | '[^'\n]*' )
               | [bB]?(?: """(?:\\.|[^\\])*?""" | \'\'\'(?:\\.|[^\\])*?\'\'\' | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' ) )
  | (?P<number>  0[xX][0-9a-fA-F]+[uU]? | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[uU]? )
  | (?P<name>    [A-Za-z_]\w* )
  | (?P<operator> && | \|\| | [<>=!]= | . )
    ''',
    re.VERBOSE | re.DOTALL,
)
COMPREHENSIONS = frozenset({"all", "exists", "exists_one", "map", "filter"})
OPENING, CLOSING = "([{", ")]}"


@dataclass(frozen=True, kw_only=True)
class Token:
    """`at`: the index of its first character in the expression."""

    kind: str
    text: str
    at: int

    def is_operator(self, *texts: str) -> bool:
        return self.kind == "operator" and self.text in texts

    @property
    def end(self) -> int:
        return self.at + len(self.text)


def placed(text: str) -> list[Token]:
    """The tokens with their places."""
    return [
        Token(kind=str(found.lastgroup), text=found.group(), at=found.start())
        for found in TOKEN.finditer(text)
        if found.lastgroup not in (None, "space")
    ]


def tokens_of(text: str) -> list[tuple[str, str]]:
    return [
        (str(found.lastgroup), found.group())
        for found in TOKEN.finditer(text)
        if found.lastgroup not in (None, "space")
    ]


def called(tokens: Sequence[tuple[str, str]]) -> set[str]:
    """The names of functions, methods and macros."""
    return {
        name
        for (kind, name), following in zip(tokens, tokens[1:], strict=False)
        if kind == "name" and following == ("operator", "(") and name != "in"
    }


def bound_names(tokens: Sequence[tuple[str, str]]) -> set[str]:
    """The variables of comprehensions, such as x in `event.data.items.exists(x, x.paid)`."""
    return {
        tokens[at + 2][1]
        for at in range(len(tokens) - 3)
        if tokens[at][1] in COMPREHENSIONS and tokens[at + 1][1] == "(" and tokens[at + 3][1] == ","
    }


def reads_data(tokens: Sequence[tuple[str, str]]) -> bool:
    """Whether the expression may read `event.data`: not if each `event` is followed by a field of the envelope."""
    for at, token in enumerate(tokens):
        if token == ("name", "event"):
            following = [text for _, text in tokens[at + 1 : at + 3]]
            if len(following) < 2 or following[0] != "." or following[1] not in ENVELOPE:
                return True
    return False
