"""How many old turns of a session must go. Turns go whole, so a call of a tool is never without its result. Pure."""

from collections.abc import Sequence


def surplus(characters: Sequence[int], most_turns: int, most_characters: int) -> int:
    """How many of the oldest turns are too many, given the characters of each, oldest first. A turn that is too long by itself
    goes as well."""
    kept, total = 0, 0
    for count in reversed(characters[-most_turns:]):
        total += count
        if total > most_characters:
            break
        kept += 1
    return len(characters) - kept
