"""The answer of a model as it can be recorded. Neither PostgreSQL nor UTF-8 has NUL or an unpaired surrogate: U+FFFD stands in
their place, in texts, in names and in the arguments of calls. A slip of the model does not fail its run."""

import json
import re
from typing import Any

UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
# In JSON as a text; a pair of surrogates, which is a character, begins so too.
ESCAPED = re.compile(r"\\u(?:0000|d[89a-f])", re.IGNORECASE)


def recordable(answer: Any) -> Any:
    """The answer, as JSON, without characters that cannot be stored."""
    if isinstance(answer, str):
        return UNSTORABLE.sub("\ufffd", answer)
    if isinstance(answer, list):
        return [recordable(item) for item in answer]
    if not isinstance(answer, dict):
        return answer
    found = {recordable(name): recordable(value) for name, value in answer.items()}
    if "part_kind" in found and isinstance(found.get("args"), str):
        found["args"] = _arguments(found["args"])
    return found


def _arguments(text: str) -> str:
    """The arguments of a call, which most providers send as JSON in a text. The tool's validation refuses a text that
    is not JSON.
    """
    if not ESCAPED.search(text):
        return text
    try:
        given = json.loads(text)
        cleaned = recordable(given)
        return text if cleaned == given else json.dumps(cleaned, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
