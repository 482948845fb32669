"""The arguments of a call as JSON for a person; equal arguments give equal JSON."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from agents.journal.canonical import canonical


def as_json(value: Any) -> Any:
    """The value as JSON. A value that is not JSON is replaced by the name of its class; elements of a set are
    sorted.
    """
    match value:
        case BaseModel():
            return as_json(value.model_dump(by_alias=True))
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
        case Mapping():
            return {str(plain(name)): as_json(inner) for name, inner in value.items()}
        case set() | frozenset():
            return sorted(map(as_json, value), key=canonical)
        case list() | tuple():
            return [as_json(inner) for inner in value]
    return plain(value)


def plain(value: Any) -> Any:
    return to_jsonable_python(value, bytes_mode="base64", fallback=lambda other: type(other).__qualname__)


def as_the_model_gives_them(arguments: Any, schema: Mapping[str, Any]) -> Any:
    """A tool with a single object as its parameter takes the fields of that object; validated, they stand inside it."""
    properties = schema.get("properties")
    if isinstance(arguments, dict) and len(arguments) == 1 and isinstance(properties, dict):
        [(name, inner)] = arguments.items()
        inner = as_json(inner)
        if properties and name not in properties and isinstance(inner, dict):
            return inner
    return arguments


def is_as_entered(entered: Any, made: Any, shown: Any) -> bool:
    """Is what a call would be made with what a person entered, besides what they left out and had been shown? A number may be a
    text, as a Decimal is one in JSON."""
    if isinstance(entered, dict) and isinstance(made, dict):
        before = shown if isinstance(shown, dict) else {}
        return set(entered) <= set(made) and all(
            is_as_entered(entered[name], inner, before.get(name))
            if name in entered
            else name in before and canonical(before[name]) == canonical(inner)
            for name, inner in made.items()
        )
    if isinstance(made, str) and isinstance(entered, int | float) and not isinstance(entered, bool):
        return made in (str(entered), canonical(entered))
    return canonical(entered) == canonical(made)


def of_output(output: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """An output, validated, by the names of what its function takes: pydantic-ai hands over a single parameter without its name."""
    found, names = as_json(output), list(schema.get("properties") or {})
    if isinstance(found, dict) and (len(names) != 1 or set(found) <= set(names)):
        return found
    return {names[0] if len(names) == 1 else "output": found}
