"""Characters that a person does not see, and a program reads."""

import json
import re

# Unicode tags, and those that turn the direction of writing.
HIDDEN = re.compile("[\U000e0000-\U000e007f\u202a-\u202e\u2066-\u2069]")


def in_sight(text: str) -> str:
    """The text with these characters as JSON escapes them."""
    return HIDDEN.sub(lambda found: json.dumps(found[0])[1:-1], text)
