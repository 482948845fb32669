"""What a tool says of itself in its metadata.

    @agent.tool(metadata={"effect": "at_most_once", "dangerous": True})
    def refund(ctx: RunContext, invoice: int, cents: int) -> str: ...

`effect` is that of a step (`agents.journal.protocol.Effect`); a tool that says none is "idempotent". A `dangerous` tool asks
for approval in a run that has seen untrusted data; one with `requires_approval=True` always does. `expires` ("4h") is how
long that question stands. What an `untrusted` tool gives is data of strangers, such as a web page or a mail: it is fenced,
also as an error, and the run counts as one that has seen untrusted data from the beginning of the call.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args

from agents.durations import parse_duration
from agents.exceptions import Permanent
from agents.journal.protocol import Effect

QUESTION_STANDS = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class ToolPolicy:
    effect: Effect = "idempotent"
    dangerous: bool = False
    untrusted: bool = False
    expires: timedelta = QUESTION_STANDS

    @classmethod
    def of(cls, name: str, metadata: Mapping[str, Any] | None) -> "ToolPolicy":
        """Permanent: the metadata says something that a tool cannot be."""
        said = metadata or {}
        effect = said.get("effect", "idempotent")
        if effect not in get_args(Effect):
            raise Permanent(f"tool {name!r}: effect {effect!r} is not one of {', '.join(get_args(Effect))}")
        flags = {flag: said.get(flag, False) for flag in ("dangerous", "untrusted")}
        for flag, value in flags.items():
            if not isinstance(value, bool):
                raise Permanent(f"tool {name!r}: {flag} is True or False, not {value!r}")
        try:
            expires = parse_duration(said["expires"]) if "expires" in said else QUESTION_STANDS
        except ValueError as error:
            raise Permanent(f"tool {name!r}: expires: {error}") from error
        return cls(effect=effect, expires=expires, **flags)
