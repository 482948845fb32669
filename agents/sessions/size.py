"""The number of old turns that a session must drop. Turns go whole, so a call of a tool is never without its result.
Pure.
"""

from collections.abc import Sequence


def surplus(characters: Sequence[int], most_turns: int, most_characters: int) -> int:
    """The number of oldest turns to drop, given the characters of each, oldest first. A turn that is too long by itself
    is dropped as well.
    """
    kept, total = 0, 0
    for count in reversed(characters[-most_turns:]):
        total += count
        if total > most_characters:
            break
        kept += 1
    return len(characters) - kept
