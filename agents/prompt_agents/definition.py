"""A version of a prompt agent, and its faults."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from hashlib import sha256
from typing import Any

from agents.exceptions import Permanent
from agents.kernel.reserved_types import is_reserved, refusal
from agents.sessions.names import checked_name

LENGTHS = {"instructions": 20_000, "model": 200, "session": 100, "emit": 200}
MOST_NAMES = 50  # of tools, of recipients, and of connections
NAME_LENGTH = 200
PREFIX = "prompt:"  # of the version of a prompt agent, which is no fingerprint of code


@dataclass(frozen=True, kw_only=True)
class Definition:
    """The definition of a prompt agent. `model` "": WAKEFUL_MODEL. `tools` are names of the toolbox, and `connections` has the
    connection for each name that they use. Those of a person are of the user `acts_for`, which who saves the version sets.
    With `by_thread` each thread of messages is a conversation, else all runs have that of `session`.

    If its verdict has something to report, it notifies people (`notify_to`; none: those who get notifications without recipients) and
    emits an event of the type `emit`, with `ask_first` only after a person has approved that.
    """

    instructions: str
    model: str = ""
    tools: tuple[str, ...] = ()
    connections: Mapping[str, str] = field(default_factory=dict)
    acts_for: str = ""
    session: str = ""
    by_thread: bool = False
    notify: bool = True
    notify_to: tuple[str, ...] = ()
    emit: str = ""
    ask_first: bool = False

    @classmethod
    def load(cls, stored: Mapping[str, Any]) -> "Definition":
        """Read the JSON of a version. Unknown keys, of another version of Wakeful, are ignored."""
        known: dict[str, Any] = {one.name: stored[one.name] for one in fields(cls) if one.name in stored}
        for name, value in known.items():
            known[name] = tuple(value) if isinstance(value, list) else value
        return cls(**known)

    @classmethod
    def beyond(cls, stored: Mapping[str, Any]) -> list[str]:
        """The unknown keys of the JSON of a version that have a value: a newer version of Wakeful uses them."""
        known = {one.name for one in fields(cls)}
        return sorted(name for name, value in stored.items() if value and name not in known)

    def dump(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @property
    def version(self) -> str:
        """The same for the same definition, as the version of an agent in code follows its source."""
        text = json.dumps(self.dump(), sort_keys=True, ensure_ascii=False)
        return PREFIX + sha256(text.encode()).hexdigest()[:12]

    def faults(self) -> Iterator[str]:
        """Each names a field and its fix."""
        for name, most in LENGTHS.items():
            value = getattr(self, name)
            if not isinstance(value, str) or len(value) > most:
                yield f"{name}: must be a text of at most {most:,} characters"
            elif "\x00" in value:
                yield f"{name}: must not contain NUL characters"
        for name in ("tools", "notify_to"):
            value = getattr(self, name)
            if not isinstance(value, tuple) or not all(_is_name(each) for each in value) or len(value) > MOST_NAMES:
                yield f"{name}: must be a list of at most {MOST_NAMES} names"
            elif len(set(value)) < len(value):
                yield f"{name}: names something twice"
        if not _are_names(self.connections):
            yield f"connections: must map at most {MOST_NAMES} names that the tools use to connections"
        for name in ("by_thread", "notify", "ask_first"):
            if not isinstance(getattr(self, name), bool):
                yield f"{name}: must be true or false"
        if isinstance(self.instructions, str) and not self.instructions.strip():
            yield "instructions: are missing; write what the agent is to look for"
        try:
            checked_name(self.session or "fresh")
        except Permanent as error:
            yield f"session: {error}"
        if isinstance(self.emit, str) and is_reserved(self.emit):
            yield f"emit: {refusal(self.emit)}"
        if self.notify_to and not self.notify:
            yield "notify_to: names recipients, but notify is off"
        if self.ask_first and not self.notify and not self.emit:
            yield "ask_first: there is nothing to ask about; switch notify on, or give the type of an event to emit"


def _are_names(given: Any) -> bool:
    is_mapping = isinstance(given, Mapping) and len(given) <= MOST_NAMES
    return is_mapping and all(_is_name(name) for pair in given.items() for name in pair)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= NAME_LENGTH and "\x00" not in value
