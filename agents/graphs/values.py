"""A value of a checkpoint in a journal: as JSON where that is exactly the value, and readable then; otherwise as LangGraph's bytes."""

import json
from base64 import b64decode, b64encode
from typing import Any, Protocol

from agents.exceptions import Permanent
from agents.guards.storable import storable
from agents.journal.canonical import as_read


class Serializer(Protocol):
    def dumps_typed(self, obj: Any) -> tuple[str, bytes]: ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any: ...


def stored(value: Any, serializer: Serializer) -> dict[str, Any]:
    if _is_plain(value) and _is_read_the_same(value):
        return {"json": value}
    type, data = serializer.dumps_typed(value)
    return {"type": type, "base64": b64encode(data).decode()}


def loaded(kept: dict[str, Any], serializer: Serializer) -> Any:
    if "json" in kept:
        return kept["json"]
    return serializer.loads_typed((kept["type"], b64decode(kept["base64"])))


def without_bytes(output: Any) -> Any:
    """The recorded checkpoint for a reader: no secret can be taken out of bytes."""
    if isinstance(output, list):
        return [without_bytes(inner) for inner in output]
    if not isinstance(output, dict):
        return output
    if output.keys() == {"type", "base64"}:
        return {"type": output["type"], "bytes": len(output["base64"]) * 3 // 4}
    return {name: without_bytes(inner) for name, inner in output.items()}


def _is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(name) is str and _is_plain(inner) for name, inner in value.items())
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is float:
        return "e" not in repr(value)  # PostgreSQL writes those as whole numbers
    return value is None or type(value) in (str, int, bool)


def _is_read_the_same(value: Any) -> bool:
    """Does the journal give back this value, with the keys of its objects in this order?"""
    try:
        text = json.dumps(storable(value, "it"))
    except (Permanent, ValueError, RecursionError):
        return False
    return json.dumps(as_read(text)) == text
