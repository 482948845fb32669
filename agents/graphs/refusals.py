"""While a graph of a run is under way, a model that is not `journaled` is refused: nothing would be recorded or paid from budgets. So is a
tool beyond the tool cap. LangChain asks the handler before each call, in every thread, whatever callbacks the call is given."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.tracers.context import register_configure_hook

from agents.exceptions import Permanent
from agents.frameworks.tools import depth, require_in_cap
from agents.journal.begun import is_within_step

JOURNALED = "wakeful_journaled"  # in the metadata of models that `journaled` made

_passes: ContextVar[bool] = ContextVar("passes", default=False)
_caps: list[frozenset[str] | None] = []  # of the graphs under way in this process
_lock = threading.Lock()


@contextmanager
def refusing(tools: frozenset[str] | None) -> Iterator[None]:
    """While a graph is under way whose run may use these tools (None: all)."""
    with _lock:
        _caps.append(tools)
    try:
        yield
    finally:
        with _lock:
            _caps.remove(tools)


@contextmanager
def passing() -> Iterator[None]:
    """While a journaled model passes a request on."""
    token = _passes.set(True)
    try:
        yield
    finally:
        _passes.reset(token)


class Refusals(BaseCallbackHandler):
    raise_error = True
    run_inline = True

    def on_chat_model_start(self, serialized: Any, messages: Any, *, metadata: Any = None, **kwargs: Any) -> None:
        self._require_journaled(serialized, metadata)

    def on_llm_start(self, serialized: Any, prompts: Any, *, metadata: Any = None, **kwargs: Any) -> None:
        self._require_journaled(serialized, metadata)

    def on_tool_start(self, serialized: Any, input_str: str, **kwargs: Any) -> None:
        for cap in list(_caps):
            require_in_cap(str((serialized or {}).get("name", "")), cap)
        depth.set(depth.get() + 1)

    def on_tool_end(self, output: Any, **kwargs: Any) -> None:
        depth.set(max(depth.get() - 1, 0))

    def on_tool_error(self, error: BaseException, **kwargs: Any) -> None:
        depth.set(max(depth.get() - 1, 0))

    def _require_journaled(self, serialized: Any, metadata: Any) -> None:
        if not _caps or _passes.get() or (metadata or {}).get(JOURNALED):
            return
        if is_within_step():
            return  # recorded there
        name = (serialized or {}).get("name") or "a model"
        raise Permanent(
            f"{name} is called by itself in a graph of a run: nothing would be recorded or paid from budgets, and a node that is repeated "
            "would pay again. Wrap it: agents.graphs.journaled(model)"
        )


_refusals = Refusals()  # has no state
_handler: ContextVar[BaseCallbackHandler | None] = ContextVar("refusals", default=_refusals)  # in every context
register_configure_hook(_handler, inheritable=True)
