import json
import re
from collections.abc import Sequence
from typing import Any

from .exceptions import Permanent

# An escaped NUL; an even number of backslashes before it would make it the text of an escape.
NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def storable(value: Any, what: str) -> Any:
    """The value, if PostgreSQL can store it as JSON; Permanent says what is wrong otherwise."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Permanent(
            f"{what} is not JSON: {error}. Use plain dicts, lists, strings, numbers, booleans or None"
        ) from error
    if NUL.search(text):
        raise Permanent(f"{what} contains a NUL character, which PostgreSQL cannot store; remove it")
    return value


def shown(arguments: Sequence[Any]) -> list[Any]:
    """What a step is about to send, as far as it is JSON; its text otherwise."""
    found = []
    for argument in arguments:
        try:
            found.append(storable(argument, "an argument"))
        except Permanent:
            found.append(repr(argument)[:1000].replace("\x00", ""))
    return found
