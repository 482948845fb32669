import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agents.exceptions import Permanent
from agents.kernel.redaction import stored, stored_json

MAX_LEVELS = 100  # of nesting, like webhooks and the API; Python 3.12 and later would write thousands
# An escaped NUL: \u0000 after an even number of backslashes.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def storable(value: Any, what: str) -> Any:
    """Return the value if PostgreSQL can store it as JSON, without the secrets that this process knows; otherwise raise Permanent
    with the reason."""
    try:
        text = json_text(value, what)
    except ValueError as error:
        raise Permanent(str(error)) from error
    return value if stored(text) == text else stored_json(value)


def json_text(value: Any, what: str, default: Callable[[Any], Any] | None = None) -> str:
    """The value as JSON that PostgreSQL can store; ValueError says why it cannot. `default`: as of `json.dumps`."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=default)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{what} is not JSON: {error}. Use plain dicts, lists, strings, numbers, booleans or None"
        ) from error
    if _is_too_deep(value, text):
        raise ValueError(f"{what} is nested deeper than {MAX_LEVELS} levels; store it flatter, or as text")
    if NUL.search(text):
        raise ValueError(f"{what} contains a NUL character, which PostgreSQL cannot store; remove it")
    return text


def _is_too_deep(value: Any, text: str) -> bool:
    if text.count("[") + text.count("{") < MAX_LEVELS:
        return False
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: Any) -> Iterable[Any]:
    if isinstance(node, dict):
        return node.values()
    return node if isinstance(node, (list, tuple)) else ()


def shown(arguments: Sequence[Any]) -> list[Any]:
    """The arguments of a step for people to read: as JSON if they are, otherwise their repr."""
    found = []
    for argument in arguments:
        try:
            found.append(storable(argument, "an argument"))
        except Permanent:
            found.append(stored(repr(argument))[:1000].replace("\x00", ""))
    return found
