"""A kind's settings: a frozen dataclass whose fields carry labels, help texts and checks."""

import dataclasses
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

S = TypeVar("S")
T = TypeVar("T", str, bool, int)

NAMED = 10  # unknown names in an error
EXPECTED = {str: "must be text", bool: "must be true or false", int: "must be a whole number"}
# RFC 9110 §5.6.2: a field name is a token.
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,100}", re.ASCII)
JSON_PATH = re.compile(r"[^.\s]+(\.[^.\s]+)*")


class InvalidSettings(ValueError):
    """Invalid settings or an invalid secret; `errors` has one message for each field."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.errors = dict(errors)
        super().__init__("; ".join(f"{name}: {error}" for name, error in self.errors.items()))


class NotYet(InvalidSettings):
    """An object that the settings name does not exist yet. A source declared in code waits for it; for a person it is
    an error.
    """


@dataclass(frozen=True, kw_only=True)
class Field:
    """A setting as a form shows it."""

    name: str
    label: str
    help_text: str
    default: str | bool | int
    choices: tuple[str, ...]
    check: Callable[[Any], str]
    suggest: Callable[[], Sequence[str]]
    is_first: bool
    secret_goes_to: Callable[[Any], Hashable] | None


def setting(
    default: T,
    label: str,
    help_text: str = "",
    *,
    choices: Iterable[str] = (),
    check: Callable[[T], str] = lambda value: "",
    suggest: Callable[[], Sequence[str]] = tuple,
    is_first: bool = False,
    secret_goes_to: Callable[[T], Hashable] | None = None,
) -> T:
    """A field of a settings dataclass; `check` returns the error of a value of the default's type, or an empty string. A form
    offers the values that `suggest` returns, and takes others as well. `is_first`: it stands above all others. `secret_goes_to` is the
    part of the value that decides where, and how protected, the source's secret goes, or which secrets of others are read with it: when
    it changes, the secret must be entered again."""
    metadata = {
        "default": default, "label": label, "help_text": help_text, "choices": tuple(choices), "check": check, "suggest": suggest,
        "is_first": is_first, "secret_goes_to": secret_goes_to,
    }  # fmt: skip
    described: T = dataclasses.field(default=default, metadata=metadata)
    return described


def fields_of(settings_class: type[Any]) -> tuple[Field, ...]:
    # The address, then the kind's own settings, then those of its base class.
    fields = sorted(
        dataclasses.fields(settings_class),
        key=lambda field: (not field.metadata["is_first"], field.name not in settings_class.__annotations__),
    )
    return tuple(Field(name=field.name, **field.metadata) for field in fields)


def clean(settings_class: type[S], settings: Mapping[str, object]) -> S:
    """An instance of the dataclass. InvalidSettings has all errors."""
    fields = {field.name: field for field in fields_of(settings_class)}
    unknown = [name for name in settings if name not in fields][:NAMED]
    errors = {name: f"is unknown; use {', '.join(fields) or 'no settings'}" for name in unknown}
    errors |= {name: error for name in settings if name in fields and (error := _error(fields[name], settings[name]))}
    if errors:
        raise InvalidSettings(errors)
    return settings_class(**settings)


def server_of(url: str) -> Hashable:
    """All of an address that decides where a secret goes. The path decides only what is done with it there."""
    parts = urlsplit(url)
    return parts.scheme, parts.username, parts.hostname, parts.port


def header_name(value: str) -> str:
    return "" if not value or HEADER_NAME.fullmatch(value) else "must be the name of a header, such as X-Signature"


def required_header_name(value: str) -> str:
    return header_name(value) if value else "must name a header, such as X-Signature"


def json_path(value: str) -> str:
    return "" if not value or JSON_PATH.fullmatch(value) else "must be names joined by dots, such as data.id"


def whole_number(lowest: int, highest: int) -> Callable[[int], str]:
    """A check that a number is within these bounds, which are included."""
    return lambda value: "" if lowest <= value <= highest else f"must be a number from {lowest:,} to {highest:,}"


def _error(field: Field, value: object) -> str:
    # Not isinstance: True is an int.
    if type(value) is not type(field.default):
        return EXPECTED[type(field.default)]
    if field.choices and value not in field.choices:
        return f"must be one of {', '.join(field.choices)}"
    return field.check(value)
