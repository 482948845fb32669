"""The model of the demo: deterministic, without a network, free of charge. It fills the requested schema with values
from the prompt, so that an agent works without an API key. For a verdict it calls the read-only tools and reports their
results: it cannot judge, and its answer states that.
"""

import re
from collections.abc import Iterator
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition

BUILTIN = "builtin"
WORDS = re.compile(r"[a-z]+")
LINE = 200  # characters; a longer text is a letter
ASKED = re.compile(r"\bwrite the answer if one is due\b", re.IGNORECASE)
MESSAGE = re.compile(r'"text": "((?:[^"\\]|\\.)*)"')  # of a message in JSON
ABOUT = re.compile(r"(?:write|draft) an? (\w+ of) this (\w+)\.?", re.IGNORECASE)  # "Write a reminder of this invoice."
SAID = {"customer", "number"}  # in the greeting and the first sentence
VERDICT = {"notify", "items", "text", "next_check"}
ITEM = re.compile(r"^(\d+)\. ", re.MULTILINE)
FENCED = re.compile(r"<untrusted-data[^>]*>\n(.*)\n</untrusted-data", re.DOTALL)
NOTHING = {"", "[]", "{}", "null", "None", "0", "false"}
HONEST = "From the built-in model, which does not judge (set WAKEFUL_MODEL for one that does). The tools say:"
FACT = re.compile(r'^\s*"(\w+)": "?([^"\n]+?)"?,?$', re.MULTILINE)  # of an object in JSON


def builtin_model() -> FunctionModel:
    return FunctionModel(_answer, model_name=BUILTIN)


def _answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    prompt = "\n".join(
        part.content
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and isinstance(part.content, str)
    )
    turns = sum(isinstance(message, ModelResponse) for message in messages)
    if _is_verdict(info):
        readers = [tool for tool in info.function_tools if _only_reads(tool)]
        if turns < len(readers):
            return ModelResponse(parts=[ToolCallPart(readers[turns].name, {})])
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, _verdict(prompt, messages))])
    if turns < len(info.function_tools):
        return ModelResponse(parts=[_call(info.function_tools[turns], prompt)])
    if info.output_tools:
        return ModelResponse(parts=[_call(info.output_tools[0], prompt)])
    return ModelResponse(parts=[TextPart(f"(built-in model) {_first_line(prompt)}")])


def _is_verdict(info: AgentInfo) -> bool:
    """Is the requested answer an `agents.heartbeats.verdict.Verdict`?"""
    return (
        len(info.output_tools) == 1
        and info.output_tools[0].parameters_json_schema.get("properties", {}).keys() >= VERDICT
    )


def _only_reads(tool: ToolDefinition) -> bool:
    return (tool.metadata or {}).get("effect") == "read" and not tool.parameters_json_schema.get("required")


def _verdict(prompt: str, messages: list[ModelMessage]) -> dict[str, Any]:
    """Notify if any read-only tool returned something. Every checklist item gets that outcome, or `failed` if there is
    no such tool.
    """
    said = [line for message in messages if isinstance(message, ModelRequest) for line in _told(message)]
    items = [int(number) for number in ITEM.findall(prompt)]
    if not any(has_news for has_news, _ in said):
        why = "the tools say nothing" if said else "the built-in model has no tool that only reads, and cannot judge"
        outcome = "ok" if said else "failed"
        return {"notify": False, "items": [{"item": item, "outcome": outcome, "text": why} for item in items]}
    told = "\n".join(text for has_news, text in said if has_news)
    news = [{"item": item, "outcome": "news", "text": "see the message"} for item in items]
    return {"notify": True, "text": f"{HONEST}\n{told}"[:4000], "items": news}


def _told(message: ModelRequest) -> Iterator[tuple[bool, str]]:
    """The results of the tools as text, and whether any of them returned something."""
    for part in message.parts:
        if not isinstance(part, ToolReturnPart):
            continue
        text = part.model_response_str()
        inner = FENCED.search(text)
        found = (inner[1] if inner else text).strip()
        yield found not in NOTHING, f"{part.tool_name}: {found[:1000]}"


def _call(tool: ToolDefinition, prompt: str) -> ToolCallPart:
    return ToolCallPart(tool.name, _filled(tool.parameters_json_schema, prompt, tool.parameters_json_schema))


def _filled(schema: dict[str, Any], prompt: str, root: dict[str, Any]) -> Any:
    if reference := schema.get("$ref"):
        return _filled(root["$defs"][reference.rsplit("/", 1)[-1]], prompt, root)
    if options := schema.get("anyOf"):
        return _filled(options[0], prompt, root)
    if "const" in schema:
        return schema["const"]
    if choices := schema.get("enum"):
        words = WORDS.findall(prompt.lower())
        return next((choice for choice in choices if str(choice).lower() in words), choices[0])
    if "default" in schema:
        return schema["default"]
    match schema.get("type"):
        case "object":
            parts = schema.get("properties", {})
            filled = {
                name: _found(name, part, prompt) or _filled(part, prompt, root)
                for name, part in parts.items()
                if name in schema.get("required", ())
            }
            if "answer" in parts and (answer := _answer_due(prompt)):
                filled["answer"] = answer
            return filled
        case "array":
            return [_filled(schema["items"], prompt, root)] * schema.get("minItems", 0)
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "boolean":
            return False
        case "string":
            length = schema.get("maxLength", 120)
            return ((_letter(prompt) if length > LINE else _subject(prompt)) or _first_line(prompt))[:length]
    return None


def _found(name: str, schema: dict[str, Any], prompt: str) -> str | None:
    """The value that the prompt gives for this name, in a line `name: value` or in JSON."""
    if schema.get("type") != "string" or "enum" in schema:
        return None
    found = re.search(rf'"?\b{re.escape(name)}"?: "?([^"\n]+)', prompt)
    return found[1].strip().rstrip(",")[: schema.get("maxLength", 120)] if found else None


def _facts(prompt: str) -> dict[str, str]:
    """The values of the object in the prompt, without addresses and what is empty."""
    return {name: value for name, value in FACT.findall(prompt) if value not in ("null", "0") and "@" not in value}


def _subject(prompt: str) -> str:
    """The subject of a letter about a numbered object in the prompt; empty if the prompt requests no letter."""
    about, number = ABOUT.fullmatch(_first_line(prompt)), _facts(prompt).get("number")
    return f"{about[1].capitalize()} {about[2]} {number}" if about and number else ""


def _letter(prompt: str) -> str:
    """A letter to the customer of that object, with its facts; empty if the prompt requests no letter."""
    if not (subject := _subject(prompt)):
        return ""
    facts = _facts(prompt)
    greeting = f"Dear {facts.get('customer', 'customer')},\n\nThis is a {subject[0].lower()}{subject[1:]}."
    told = [f"{name.replace('_', ' ').capitalize()}: {facts[name]}" for name in sorted(facts.keys() - SAID)]
    return "\n".join([greeting, "", *told, "", "Kind regards"])


def _answer_due(prompt: str) -> str:
    """An answer that leaves all to the person who reads it, where the prompt asks for one and the message has a question; empty: none
    is due."""
    message = MESSAGE.search(prompt)
    if (
        not ASKED.search(_first_line(prompt))
        or not message
        or "?" not in message[1]
        or '"is_automatic": true' in prompt
    ):
        return ""
    return "Thank you for your message.\n\n[your answer]\n\n(drafted by the built-in model, which does not read)"


def _first_line(prompt: str) -> str:
    return next((line.strip() for line in prompt.splitlines() if line.strip()), "nothing to say")
