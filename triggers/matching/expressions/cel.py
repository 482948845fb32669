"""CEL expressions over one event: limits before parsing, static analysis, and evaluation. Pure and without Django, because the
evaluator process imports it. `evaluator` limits time, `runs.processes.isolation` memory."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any

from cel_expr_python import cel

from triggers.matching.expressions.conditions import Condition, Equality, conditions_of
from triggers.matching.expressions.faults import Fault, name_fault, slow_list, syntax_fault, unknown_name
from triggers.matching.expressions.tokens import ENVELOPE, called, reads_data, tokens_of

# A variable for each field, so that the payload is converted only for an expression that reads it.
ENVIRONMENT = cel.NewEnv(
    variables={
        **{f"event.{name}": cel.Type.STRING for name in ENVELOPE},
        "event.time": cel.Type.TIMESTAMP,
        "event.data": cel.Type.DYN,
    }
)
INTEGERS = range(-(2**63), 2**63)
MAX_LENGTH = 2_000  # characters; the parser refuses what is nested more than 32 deep
MAX_ITERATIONS = 10_000  # elements that the macros of one expression look at, together: the library's budget
MAX_VALUE = 2**20  # characters of one input value as JSON
MAX_SHOWN = 1_000  # characters of one value in an explanation
MISSING = object()
FEW = 10  # elements or fields of a value in an explanation
JSON_NAMES: Mapping[type, str] = {list: "list", dict: "object", str: "text"}

# Messages of the library.
UNDECLARED = re.compile(r"undeclared reference to '([^']+)'")
STATUS = re.compile(r"^[A-Z_]+: | \[[A-Z_]+\]$")
NO_OVERLOAD = re.compile(r"No matching overloads found : (\S+?)\((.*)\)", re.DOTALL)
MISSING_FIELD = re.compile(r'^NOT_FOUND: Key not found in map : "(.*)"', re.DOTALL)
# Functions with at most linear cost. Expressions with others (comprehensions, whose `filter` and `map` are quadratic; regular
# expressions; unknown names) are evaluated in another process.
LINEAR = frozenset(
    ["has", "size", "contains", "startsWith", "endsWith", "int", "uint", "double", "string", "bool", "timestamp"]
)


class ExpressionError(ValueError):
    """A CEL expression exceeds a limit, does not compile, or has a value that is not allowed; the message gives the
    reason. `fault`: the place, if it is known.
    """

    def __init__(self, message: str, fault: Fault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


class Unaffordable(ExpressionError):
    """An expression, or its event, needs more time or memory than the limits allow."""


@dataclass(frozen=True, kw_only=True)
class Expression:
    """A compiled expression. `is_linear`: its cost is at most linear in the size of its text and the event. `conditions`: necessary
    ones, where it is a filter."""

    text: str
    program: cel.Expression
    reads_data: bool
    is_linear: bool
    conditions: tuple[Condition, ...] = ()

    @property
    def equalities(self) -> tuple[Equality, ...]:
        return tuple(found for found in self.conditions if isinstance(found, Equality))


@dataclass(frozen=True, kw_only=True)
class Question:
    """A trigger's expressions to evaluate on one event. Empty: not evaluated. `parts`: expressions to explain, one by one."""

    filter: str = ""
    key: str = ""
    input: Mapping[str, str] = field(default_factory=dict)
    parts: Sequence[str] = ()

    @property
    def expressions(self) -> list[str]:
        return [text for text in (self.filter, self.key, *self.input.values()) if text]


@dataclass(frozen=True, kw_only=True)
class ExpressionAnswer:
    """The values of a question's expressions, or the `error`. `parts`: the value of each part in short, or its error."""

    passes: bool = True
    key: str = ""
    input: Mapping[str, Any] = field(default_factory=dict)
    parts: Sequence[tuple[str, str]] = ()
    error: str = ""
    is_unaffordable: bool = False  # a limit was exceeded, so the values are unknown


def compile_expression(text: str) -> Expression:
    """Compile CEL over `event`. ExpressionError names the fault."""
    found = compiled(text)
    if isinstance(found, ExpressionError):
        raise found
    return found


def check_expression(text: str) -> None:
    """Raises ExpressionError unless the expression compiles and uses functions and fields of `event` that exist. For saving: stored
    expressions need not pass it."""
    if fault := name_fault(text):
        raise ExpressionError(str(fault), fault)
    compile_expression(text)


def check_condition(text: str) -> None:
    """Check a filter or a key like check_expression. It may not build a list either, because that takes quadratic
    time.
    """
    check_expression(text)
    if fault := slow_list(text):
        raise ExpressionError(str(fault), fault)


def compile_each(texts: Iterable[str]) -> dict[str, Expression]:
    """The expressions that compile, by text. Not cached: the caller keeps them."""
    found = {}
    for text in filter(None, texts):
        with suppress(ExpressionError):
            found[text] = _compile(text)
    return found


@lru_cache(maxsize=4096)
def compiled(text: str) -> Expression | ExpressionError:
    """Compile an expression. Caches errors as well, because stored expressions are used with every event."""
    try:
        return _compile(text)
    except ExpressionError as error:
        return error


def _compile(text: str) -> Expression:
    if len(text) > MAX_LENGTH:
        raise ExpressionError(
            f"expression of {len(text):,} characters, {text[:40]!r}…: at most {MAX_LENGTH:,} are allowed; "
            "shorten it, use several triggers, or decide in the agent"
        )
    try:
        program = ENVIRONMENT.compile(text)
    except RuntimeError as error:
        raise _as_syntax_error(text, str(error)) from error
    tokens = tokens_of(text)
    return Expression(
        text=text,
        program=program,
        reads_data=reads_data(tokens),
        is_linear=called(tokens) <= LINEAR,
        conditions=tuple(conditions_of(tokens)),
    )


def field_at(data: Any, names: Sequence[str]) -> Any:
    """The value of `data.a.b`, or MISSING."""
    for name in names:
        if not isinstance(data, dict) or name not in data:
            return MISSING
        data = data[name]
    return data


def load_data(text: str | bytes) -> Any:
    """The payload for expressions. An integer beyond 64 bits becomes the nearest double: CEL has none. Raises RecursionError if it is
    nested too deeply."""
    return json.loads(text, parse_int=_integer)


def _integer(text: str) -> int | float:
    # Check the length first: converting a million digits is quadratic.
    return float(text) if len(text) > 20 or (number := int(text)) not in INTEGERS else number


def context_of(event: Mapping[str, Any]) -> cel.Activation:
    """The event for expressions: what they read of it is converted for CEL once."""
    return ENVIRONMENT.Activation({f"event.{name}": value for name, value in event.items()})


def answer(
    question: Question,
    event: Callable[[], cel.Activation],
    expressions: Mapping[str, Expression] | None = None,
    without_data: str = "",
) -> ExpressionAnswer:
    """The values of a trigger's expressions. `without_data`: the reason why the event's data cannot be read."""

    def value_of(text: str) -> Any:
        expression = (expressions or {}).get(text) or compile_expression(text)
        if without_data and expression.reads_data:
            raise Unaffordable(f"{text!r} needs the event's data: {without_data}")
        return value(expression, event())

    try:
        if question.filter and not _boolean(question.filter, value_of(question.filter)):
            return ExpressionAnswer(passes=False)
        input = {name: _as_json(text, value_of(text)) for name, text in question.input.items()}
        key = _scalar(question.key, value_of(question.key)) if question.key else ""
        return ExpressionAnswer(key=key, input=input, parts=[_part(text, value_of) for text in question.parts])
    except ExpressionError as error:
        return ExpressionAnswer(error=str(error)[:2000], is_unaffordable=isinstance(error, Unaffordable))


def value(expression: Expression, event: cel.Activation) -> Any:
    """Evaluate an expression. Raises ExpressionError."""
    try:
        found = expression.program.eval(event)
        result = found.plain_value()
    except RuntimeError as error:
        raise ExpressionError(_reason(expression.text, str(error))) from error
    # The library returns errors as values, whose text is the message.
    if isinstance(result, str) and found.type() == cel.Type.ERROR:
        raise ExpressionError(_reason(expression.text, result))
    return result


def _as_syntax_error(text: str, message: str) -> ExpressionError:
    if "recursion" in message:
        return ExpressionError(
            f"{text[:40]!r}… is nested deeper than 32 levels, or joins more than 32 parts: shorten it"
        )
    undeclared = UNDECLARED.search(message)
    fault = unknown_name(text, undeclared[1].partition(".")[0]) if undeclared else syntax_fault(text, message)
    return ExpressionError(str(fault), fault) if fault else ExpressionError(message[:2000])


def _reason(text: str, message: str) -> str:
    """The library's message without its status codes."""
    if missing := MISSING_FIELD.search(message):
        return f"{text!r}: there is no field {missing[1]!r}"
    reason = STATUS.sub("", message)
    if reason == "Iteration budget exceeded":
        reason = f"its macros look at more than {MAX_ITERATIONS:,} elements"
    elif types := NO_OVERLOAD.fullmatch(reason):
        reason = f"{types[1].strip('_')} does not go with these types: {types[2]}"
    return f"{text!r}: {reason}"[:2000]


def _boolean(text: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ExpressionError(f"{text!r} has the value {_shown(value)}; a filter must be true or false")
    return value


def _scalar(text: str, value: Any) -> str:
    if not isinstance(value, (str, int, float, bool)):
        raise ExpressionError(f"{text!r} has the value {_shown(value)}; a key must be a string, a number or a boolean")
    return str(value)


def _part(text: str, value_of: Callable[[str], Any]) -> tuple[str, str]:
    try:
        return in_short(value_of(text)), ""
    except ExpressionError as error:
        return "", without_text(str(error), text)


def without_text(error: str, text: str) -> str:
    """The error of an expression that is shown beside it."""
    return error.removeprefix(f"{text!r}: ")


def in_short(value: Any) -> str:
    """A value for people: as JSON, or its size if that is long."""
    if isinstance(value, (dict, list)) and len(value) > FEW:
        return f"a list of {len(value):,}" if isinstance(value, list) else f"an object of {len(value):,} fields"
    if isinstance(value, str) and len(value) > MAX_SHOWN:
        return f"a text of {len(value):,} characters"
    try:
        shown = json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return f"a {type(value).__name__}"
    return (
        shown if len(shown) <= MAX_SHOWN else f"a {JSON_NAMES.get(type(value), 'value')} of {len(shown):,} characters"
    )


def _shown(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 500 else f"{shown[:500]}…"


def _as_json(expression: str, value: Any) -> Any:
    """The value as JSON, with times in RFC 3339."""
    try:
        text = json.dumps(value, allow_nan=False, default=_time_as_text)
    except (TypeError, ValueError, RecursionError) as error:
        raise ExpressionError(f"{expression!r} has a value that JSON cannot express: {error}") from error
    if len(text) > MAX_VALUE:
        raise Unaffordable(
            f"{expression!r} has a value of {len(text):,} characters of JSON; at most {MAX_VALUE:,} are allowed"
        )
    return json.loads(text)


def _time_as_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} {value!r}")
