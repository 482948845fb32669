from argparse import ArgumentTypeError
from typing import Any

from runs.api.strict_json import Unreadable, parse_json, require_storable


def json_argument(text: str) -> Any:
    """A command's argument as JSON, by the same strict rules as webhooks."""
    try:
        value = parse_json(text.encode("utf-8", "surrogateescape"))
        require_storable(value)
    except Unreadable as reason:
        raise ArgumentTypeError(str(reason)) from None
    return value
