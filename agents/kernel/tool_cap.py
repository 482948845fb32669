"""Which tools the LLM calls of a run may use: None for all, otherwise their names. Code and agents narrow a cap, and only an
operator widens one, on the trigger."""

from collections.abc import Iterable


def narrowed(cap: Iterable[str] | None, tools: Iterable[str] | None) -> frozenset[str] | None:
    """The tools that both caps allow."""
    if cap is None or tools is None:
        only = tools if cap is None else cap
        return None if only is None else frozenset(only)
    return frozenset(cap) & frozenset(tools)
