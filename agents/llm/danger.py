"""Is this call dangerous in a tainted run? By what its tool declares, or by what the call would do."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agents.llm.addresses import addresses_in, stands_in
from agents.llm.tools import ToolPolicy

TAINTED = "The run has seen untrusted data, which may have asked for this call."
ADDRESS = (
    "The run has seen untrusted data, and the address {!r} stands in no text that the author of the agent wrote: a stranger may have "
    "chosen it."
)


def danger_of(policy: ToolPolicy, arguments: Mapping[str, Any], trusted: Callable[[], Iterable[str]]) -> str:
    """The reason to ask a person before this call in a tainted run, in words for that person; empty: there is none. `trusted`: the
    texts that no stranger has written."""
    if policy.dangerous:
        return TAINTED
    if found := sorted(set(addresses_in(arguments))):
        texts = list(trusted())
        unknown = [address for address in found if not stands_in(address, texts)]
        return ADDRESS.format(unknown[0]) if unknown else ""
    return ""
