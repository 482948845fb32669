"""What a request to a model of openai-agents may cost, and did cost."""

import json
from typing import Any
from urllib.parse import urlsplit

from pydantic_ai.usage import RequestUsage

from agents.frameworks.clients import clients_of
from agents.frameworks.costs import Priced
from agents.guards.openai_agents import Given
from agents.journal.budget import Limits
from agents.llm.costs.estimate import FILE

# Providers, by words in the address of an endpoint or in the name of a model ("anthropic/claude-…", by LiteLLM and others).
PROVIDERS = ("anthropic", "google", "gemini", "groq", "mistral", "deepseek", "openrouter", "openai")
NAMES = {"gemini": "google"}
FILES = frozenset({"input_image", "input_file", "input_audio", "image_url", "file", "computer_screenshot"})


def priced(model: Any, given: Given) -> Priced:
    name = str(getattr(model, "model", "") or getattr(model, "model_name", "") or type(model).__name__)
    most = getattr(given["model_settings"], "max_tokens", None)
    return Priced(system=_provider(model, name), model_name=name.rpartition("/")[2], most=most)


def size_of(given: Given) -> int:
    input = given["input"]
    told = [given["system_instructions"], input, list(map(_described, [*given["tools"], *given["handoffs"]]))]
    schema = getattr(given["output_schema"], "output_type", None)
    told.append(given["output_schema"].json_schema() if schema not in (None, str) else None)
    return len(json.dumps(told, ensure_ascii=False, default=str).encode()) + FILE * _files(input)


def usage_of(answer: Any, priced: Priced, limits: Limits) -> dict[str, Any]:
    used = answer.usage
    details = used.input_tokens_details
    tokens = RequestUsage(
        input_tokens=used.input_tokens or 0,
        output_tokens=used.output_tokens or 0,
        cache_read_tokens=getattr(details, "cached_tokens", 0) or 0,
        cache_write_tokens=getattr(details, "cache_write_tokens", 0) or 0,
    )
    return priced.usage_of(tokens, "", limits)


def _described(tool: Any) -> list[Any]:
    names = ("name", "tool_name", "description", "tool_description", "params_json_schema", "input_json_schema")
    return [getattr(tool, name, "") for name in names]


def _provider(model: Any, name: str) -> str:
    addresses = [urlsplit(str(getattr(client, "base_url", ""))).hostname or "" for client in clients_of(model)]
    for word in PROVIDERS:
        if word in name.partition("/")[0] or any(word in address for address in addresses):
            return NAMES.get(word, word)
    return "openai" if not addresses or name.startswith("gpt") else ""


def _files(input: Any) -> int:
    if isinstance(input, dict):
        return (input.get("type") in FILES) + sum(map(_files, input.values()))
    return sum(map(_files, input)) if isinstance(input, list) else 0
