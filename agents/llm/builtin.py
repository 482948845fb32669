"""The model of the demo: deterministic, without a network, free of charge. It fills the schema that is asked of it with
what it finds in the prompt, so that an agent can be seen at work without a key."""

import re
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition

BUILTIN = "builtin"
WORDS = re.compile(r"[a-z]+")
LINE = 200  # characters; a longer text is a letter
ABOUT = re.compile(r"(?:write|draft) an? (\w+ of) this (\w+)\.?", re.IGNORECASE)  # "Write a reminder of this invoice."
SAID = {"customer", "number"}  # in the greeting and the first sentence
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
    if turns < len(info.function_tools):
        return ModelResponse(parts=[_call(info.function_tools[turns], prompt)])
    if info.output_tools:
        return ModelResponse(parts=[_call(info.output_tools[0], prompt)])
    return ModelResponse(parts=[TextPart(f"(built-in model) {_first_line(prompt)}")])


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
            return {
                name: _found(name, part, prompt) or _filled(part, prompt, root)
                for name, part in schema.get("properties", {}).items()
                if name in schema.get("required", ())
            }
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
    """Of a letter about a numbered object in the prompt; empty if none is asked for."""
    about, number = ABOUT.fullmatch(_first_line(prompt)), _facts(prompt).get("number")
    return f"{about[1].capitalize()} {about[2]} {number}" if about and number else ""


def _letter(prompt: str) -> str:
    """To the customer of that object, with its facts; empty if no letter is asked for."""
    if not (subject := _subject(prompt)):
        return ""
    facts = _facts(prompt)
    greeting = f"Dear {facts.get('customer', 'customer')},\n\nThis is a {subject[0].lower()}{subject[1:]}."
    told = [f"{name.replace('_', ' ').capitalize()}: {facts[name]}" for name in sorted(facts.keys() - SAID)]
    return "\n".join([greeting, "", *told, "", "Kind regards"])


def _first_line(prompt: str) -> str:
    return next((line.strip() for line in prompt.splitlines() if line.strip()), "nothing to say")
