"""Decide whether a call is dangerous in a tainted run: its tool is declared dangerous, or its arguments are."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agents.llm.strangers.addresses import addresses_in, stands_in
from agents.llm.tools import ToolPolicy

TAINTED = "The run has seen untrusted data, which may have asked for this call."
ADDRESS = (
    "The run has seen untrusted data, and the address {!r} stands in no text that the author of the agent wrote: a stranger may have "
    "chosen it."
)


def danger_of(policy: ToolPolicy, arguments: Mapping[str, Any], trusted: Callable[[], Iterable[str]]) -> str:
    """Why this call needs approval in a tainted run, as a text for the approver; empty: it needs none. `trusted`: the
    texts that no stranger wrote.
    """
    if policy.dangerous:
        return TAINTED
    if found := sorted(set(addresses_in(arguments))):
        texts = list(trusted())
        unknown = [address for address in found if not stands_in(address, texts)]
        return ADDRESS.format(unknown[0]) if unknown else ""
    return ""
