"""The clauses of a filter, and the fields of the event that each reads: what explains why an event did not match. Pure and without
Django."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from triggers.matching.expressions.tokens import CLOSING, OPENING, Token, bound_names, placed

MOST = 40  # clauses of one filter; a further one is not taken apart
DEEP = 6  # levels

Kind = Literal["all", "any", "clause"]


@dataclass(frozen=True, kw_only=True)
class Clause:
    """A part of a filter. `all` and `any`: its parts are joined by && or ||. `reads`: the fields that a single clause reads."""

    text: str
    kind: Kind = "clause"
    parts: Sequence["Clause"] = ()
    reads: Sequence[str] = field(default=())

    @property
    def leaves(self) -> Iterator["Clause"]:
        if self.kind == "clause":
            yield self
        for part in self.parts:
            yield from part.leaves


def clauses_of(text: str) -> Clause:
    """Take a filter apart at the && and || outside of functions and of `? :`."""
    return _clause(text, placed(text), DEEP)


def _clause(text: str, tokens: Sequence[Token], levels: int) -> Clause:
    tokens = _unwrapped(tokens)
    own = text[tokens[0].at : tokens[-1].end] if tokens else ""
    kinds: tuple[tuple[str, Kind], ...] = (("||", "any"), ("&&", "all"))
    if levels and not _outside(tokens, "?"):
        for operator, kind in kinds:
            pieces = _split(tokens, operator)
            if 1 < len(pieces) <= MOST and all(pieces):
                return Clause(text=own, kind=kind, parts=[_clause(text, piece, levels - 1) for piece in pieces])
    return Clause(text=own, reads=list(dict.fromkeys(_reads(text, tokens))))


def _unwrapped(tokens: Sequence[Token]) -> Sequence[Token]:
    """The expression without brackets around the whole of it."""
    while len(tokens) > 2 and tokens[0].is_operator("(") and _closing(tokens, 0) == len(tokens) - 1:
        tokens = tokens[1:-1]
    return tokens


def _closing(tokens: Sequence[Token], at: int) -> int:
    """The index of the bracket that closes the one at this index, or of the last token."""
    depth = 0
    for index in range(at, len(tokens)):
        depth += tokens[index].is_operator(*OPENING) - tokens[index].is_operator(*CLOSING)
        if depth == 0:
            return index
    return len(tokens) - 1


def _outside(tokens: Sequence[Token], operator: str) -> list[int]:
    """The indexes of an operator outside of brackets."""
    found, depth = [], 0
    for index, token in enumerate(tokens):
        depth += token.is_operator(*OPENING) - token.is_operator(*CLOSING)
        if depth == 0 and token.is_operator(operator):
            found.append(index)
    return found


def _split(tokens: Sequence[Token], operator: str) -> list[Sequence[Token]]:
    cuts = _outside(tokens, operator)
    return [tokens[begin:end] for begin, end in zip([0, *(cut + 1 for cut in cuts)], [*cuts, len(tokens)], strict=True)]


def _reads(text: str, tokens: Sequence[Token]) -> Iterator[str]:
    """Paths such as `event.data.order.id`, and with literal keys `event.data["a b"]`; without the name of a method."""
    if "event" in bound_names([(token.kind, token.text) for token in tokens]):
        return
    for index, token in enumerate(tokens):
        is_event = token.kind == "name" and token.text == "event"
        if is_event and not (index and tokens[index - 1].is_operator(".")):
            end = _end_of_path(tokens, index)
            if end > index:
                yield text[token.at : tokens[end].end]


def _end_of_path(tokens: Sequence[Token], index: int) -> int:
    while True:
        following = tokens[index + 1 : index + 4]
        if len(following) >= 2 and following[0].is_operator(".") and following[1].kind == "name":
            if len(following) == 3 and following[2].is_operator("("):
                return index  # a method
            index += 2
        elif len(following) == 3 and following[0].is_operator("[") and following[2].is_operator("]"):
            if following[1].kind not in ("string", "number"):
                return index
            index += 3
        else:
            return index
