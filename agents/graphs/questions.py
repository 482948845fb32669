"""The interrupts of a graph as questions to people. `interrupt(value)` in a node returns what this makes of the answer:

- of a text, or an object with `question` (and `arguments`, `detail`, `expires`, `on_expiry`, as for `run.ask_approval`): an object with
  `approved`, `decision`, `arguments`, `reason` and `by`;
- of an object with `ask`: the text that a person enters;
- of anything else: the same as of a question that shows it as its arguments.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from agents.exceptions import Permanent
from agents.journal.protocol import Answer
from agents.llm.door.approvals import ANSWER, reply_of

OPTIONS = frozenset({"question", "arguments", "detail", "expires", "on_expiry"})
Resume = Callable[[Any, Answer], Any]  # the value of the interrupt and the answer; what the node gets


def asked(value: Any, agent: str) -> dict[str, Any]:
    """The arguments of `ask_approval`. Permanent: the value cannot be shown to a person."""
    if isinstance(value, str) and value:
        return {"question": value}
    if isinstance(value, Mapping) and value.get("ask"):
        return {"question": str(value["ask"]), "arguments": {ANSWER: ""}}
    if isinstance(value, Mapping) and value.get("question") and value.keys() <= OPTIONS:
        return dict(value)
    try:
        shown = json.loads(json.dumps(value))
    except (TypeError, ValueError) as error:
        raise Permanent(f"interrupt({value!r}) cannot be shown to a person: give it a text, or JSON") from error
    return {"question": f"The graph of {agent} asks", "arguments": shown}


def resumed(value: Any, answer: Answer) -> Any:
    if isinstance(value, Mapping) and value.get("ask"):
        return reply_of(answer)
    return {
        "approved": bool(answer),
        "decision": answer.decision,
        "arguments": answer.arguments,
        "reason": answer.reason,
        "by": answer.by,
    }
