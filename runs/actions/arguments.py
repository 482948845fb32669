"""The arguments that a person enters in place of the proposed ones. An object stays an object; arguments of a tool call
must fit the tool's schema as the model got it. The tool validates them once more, like the model's own.
"""

import json
from collections.abc import Mapping
from typing import Any

from runs.models import Approval, Step, Wait

TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


def require_fitting(approval: Approval, arguments: Any) -> None:
    """Raises ValueError if the arguments have another shape; the message names the argument."""
    asked = approval.arguments
    if not isinstance(asked, dict):
        return
    if not isinstance(arguments, dict):
        raise ValueError(f"the arguments are an object with {_listed(asked)}, not {_shown(arguments)}")
    if approval.wait.key.startswith(Approval.OF_TOOLS):
        _require_known_names(asked, arguments, _schema_of(approval.wait) or {"required": list(asked)})


def _require_known_names(asked: Mapping[str, Any], arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    known = {**properties, **asked}
    for name, value in arguments.items():
        if name not in known and not schema.get("additionalProperties"):
            raise ValueError(f"argument {name!r} is not known to the tool; it takes {_listed(known)}")
        # The tool's validation is more lenient: it may have accepted the model's value.
        is_changed = name not in asked or value != asked[name]
        if is_changed and not _fits(value, properties.get(name)):
            raise ValueError(f"argument {name!r} must be {_kind_of(properties[name])}, not {_shown(value)}")
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if name not in arguments:
            raise ValueError(f"argument {name!r} is missing; the tool requires it")


def _schema_of(wait: Wait) -> Mapping[str, Any] | None:
    """The schema of the tool that needs approval, from the last recorded request that contains it; None: no request
    does.
    """
    steps = Step.objects.filter(run=wait.run_id, position__lt=wait.position)
    place = wait.key.removeprefix("approval:")
    calls = [
        key for key in steps.filter(kind=Step.Kind.LLM).values_list("key", flat=True) if place.startswith(f"{key}: ")
    ]
    if not calls:
        return None
    call = max(calls, key=len)
    requests = steps.filter(kind=Step.Kind.MODEL, key__startswith=f"{call}:", arguments__0__tools__isnull=False)
    tools = requests.order_by("-position").values_list("arguments__0__tools", flat=True).first() or []
    name_and_id = place.removeprefix(f"{call}: ")
    found = [tool for tool in tools if name_and_id.startswith(f"{tool['name']} ")]
    schema = max(found, key=lambda tool: len(tool["name"]))["parameters"] if found else None
    return schema if isinstance(schema, dict) else None


def _fits(value: Any, schema: Any) -> bool:
    """Check only the schema's top-level `type` and `enum`."""
    if not isinstance(schema, dict):
        return True
    if isinstance(schema.get("anyOf"), list):
        return any(_fits(value, one) for one in schema["anyOf"])
    if isinstance(schema.get("enum"), list):
        return any(value == one for one in schema["enum"])
    names = _types_of(schema)
    return not names or any(_is(value, name) for name in names)


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return name not in TYPES or isinstance(value, TYPES[name])


def _types_of(schema: Mapping[str, Any]) -> list[str]:
    said = schema.get("type")
    return [str(name) for name in (said if isinstance(said, list) else [said] if said else ())]


def _kind_of(schema: Mapping[str, Any]) -> str:
    if isinstance(schema.get("anyOf"), list):
        return " or ".join(_kind_of(one) for one in schema["anyOf"])
    if isinstance(schema.get("enum"), list):
        return f"one of {_shown(schema['enum'])}"
    return " or ".join(_types_of(schema))


def _listed(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, names)) or "no arguments"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 100 else f"{text[:100]}…"
