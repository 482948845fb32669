"""Output functions: functions in `output_type`, called with the answer of a model.

    @output_function(effect="at_most_once", dangerous=True)
    def send_invoice(number: int) -> str: ...

    Agent(name="sender", output_type=send_invoice)

A call of an output function is a step, under the tool cap by the function's name, and may need approval like a tool.
Its options are those of a tool (`agents.llm.tools`). Annotate the return type: a replay gets the value read from JSON.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import isclass, isroutine
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic_ai import NativeOutput, PromptedOutput, TextOutput, ToolOutput

from agents.exceptions import Permanent
from agents.journal.protocol import Effect
from agents.llm.tools import ToolPolicy

METADATA = "wakeful_tool"
F = TypeVar("F", bound=Callable[..., Any])


def output_function(*, effect: Effect = "idempotent", dangerous: bool = False, expires: str = "") -> Callable[[F], F]:
    """Declare the options of a function in `output_type`; a tool has them in its metadata."""
    metadata = {"effect": effect, "dangerous": dangerous, **({"expires": expires} if expires else {})}

    def declare(function: F) -> F:
        setattr(function, METADATA, metadata)
        return function

    return declare


@dataclass(frozen=True)
class OutputFunction:
    name: str
    policy: ToolPolicy
    returns: Any


def functions_in(output_type: Any) -> dict[str, OutputFunction]:
    """The functions in an `output_type`, by their names. Permanent: two of them have the same name."""
    found: dict[str, OutputFunction] = {}
    for function in _functions(output_type):
        name = getattr(function, "__name__", "")
        if not name or name in found:
            raise Permanent(f"output_type: each output function needs a name of its own, and {function!r} has none")
        try:
            returns = get_type_hints(function).get("return", Any)
        except (NameError, TypeError):
            returns = Any
        policy = ToolPolicy.of(name, getattr(function, METADATA, None))
        found[name] = OutputFunction(name, policy, returns)
    return found


def _functions(spec: Any) -> Iterator[Any]:
    if isinstance(spec, ToolOutput):
        yield from _functions(spec.output)
    elif isinstance(spec, TextOutput):
        yield spec.output_function
    elif isinstance(spec, NativeOutput | PromptedOutput):
        inside = list(_functions(spec.outputs))
        if inside and len(_members(spec.outputs)) > 1:
            raise Permanent(
                f"output_type: {type(spec).__name__} of several types with the function {inside[0].__name__!r}: which of them is called "
                "cannot be known before the call. Give each its ToolOutput"
            )
        yield from inside
    elif isinstance(spec, list | tuple):
        for one in spec:
            yield from _functions(one)
    elif get_origin(spec) in (Union, UnionType):
        for one in get_args(spec):
            yield from _functions(one)
    elif isroutine(spec) or (callable(spec) and not isclass(spec) and get_origin(spec) is None):
        yield spec


def _members(spec: Any) -> list[Any]:
    return list(spec) if isinstance(spec, list | tuple) else [spec]
