"""Causal chains: the slugs of the triggers (or, of runs without one, the agents) whose runs led to an event or a run."""

from collections.abc import Sequence

Chain = Sequence[str]


def merged(one: Chain, other: Chain) -> list[str]:
    """The chain of what has both for its cause: the longer one, with what only the other knows in front of it."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [*dict.fromkeys(slug for slug in shorter if slug not in longer), *longer]


def in_words(chain: Chain) -> str:
    """Such as "orders → digest → orders"."""
    return " → ".join(chain)
