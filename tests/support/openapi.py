"""The OpenAPI schema of the API as it is served, and answers held against it."""

import re
from functools import cache
from typing import Any

from django.test import Client
from drf_spectacular.drainage import GENERATOR_STATS
from jsonschema import Draft202012Validator, FormatChecker

JSON = "application/json"
FORMATS = FormatChecker(["date", "date-time", "uuid"])  # its time has an offset, which ours of a day have not


def schema() -> dict[str, Any]:
    return _served()[0]


def complaints() -> list[str]:
    """What drf-spectacular could not describe."""
    return _served()[1]


@cache
def _served() -> tuple[dict[str, Any], list[str]]:
    served = Client().get("/api/schema/", {"format": "json"}).json()
    return served, [*GENERATOR_STATS._warn_cache, *GENERATOR_STATS._error_cache]


def require_as_described(response: Any) -> None:
    """A JSON answer of an operation that the schema has is one that it describes, a refusal too."""
    method, path, status = response.request["REQUEST_METHOD"], response.request["PATH_INFO"], response.status_code
    described = path_of(path)
    if described is None or method.lower() not in schema()["paths"][described]:
        return
    if not response.get("Content-Type", "").startswith(JSON):
        return
    faults = [_text(fault) for fault in validator(method.lower(), described, str(status)).iter_errors(response.json())]
    assert not faults, (f"{method} {described} {status} is not what the schema says", faults)


def path_of(path: str) -> str | None:
    """The path of the schema, such as /api/v1/runs/{id}/; the one with the fewest parameters where several fit."""
    fitting = [known for known, pattern in _patterns().items() if pattern.fullmatch(path)]
    return min(fitting, key=lambda known: known.count("{"), default=None)


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    return {path: re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))) for path in schema()["paths"]}


@cache
def validator(method: str, path: str, status: str) -> Draft202012Validator:
    answer = schema()["paths"][path][method]["responses"][status]["content"][JSON]["schema"]
    return Draft202012Validator({**as_json_schema(answer), "components": components()}, format_checker=FORMATS)


@cache
def components() -> dict[str, Any]:
    return {"schemas": {name: as_json_schema(one) for name, one in schema()["components"]["schemas"].items()}}


def as_json_schema(node: Any) -> Any:
    """JSON Schema of a part of OpenAPI 3.0: null where it is nullable, and no member that it does not name."""
    if isinstance(node, list):
        return [as_json_schema(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {name: as_json_schema(one) for name, one in node.items() if name != "nullable"}
    if isinstance(node.get("properties"), dict):
        made.setdefault("additionalProperties", False)
    return {"anyOf": [made, {"type": "null"}]} if node.get("nullable") is True else made


def _text(fault: Any) -> str:
    return f"{fault.json_path}: {fault.message}"[:300]
