"""`/api/docs/`: the OpenAPI document as pages, one for each resource. Like it, they are the same for everyone and need no login."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import reverse
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from config.api_document import document

OBJECTS = "#/components/schemas/"
METHODS = ("get", "post", "put", "patch", "delete")
DEEP = 3  # levels of objects in an example
WORDS = {"uuid": "UUID", "date-time": "time", "uri": "address", "decimal": "decimal"}
VALUES: Mapping[str, Any] = {"integer": 1, "number": 1.5, "boolean": True, "string": "…"}


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The kind of a value: words, and the object that they name."""

    words: str
    object: str = ""


@dataclass(frozen=True, kw_only=True)
class Field:
    name: str
    kind: Kind
    note: str
    is_required: bool
    place: str = ""  # of a parameter: path or query


@dataclass(frozen=True, kw_only=True)
class Answer:
    code: str
    said: str
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class Operation:
    name: str
    method: str
    path: str
    said: str
    parameters: Sequence[Field]
    bodies: Sequence[tuple[str, Kind]]  # content type and kind
    answers: Sequence[Answer]
    example: str


@dataclass(frozen=True, kw_only=True)
class Object:
    name: str
    kind: Kind  # of one that has no fields
    fields: Sequence[Field]


@require_safe
def reference(request: HttpRequest, resource: str = "") -> HttpResponse:
    found = _pages()
    if resource and resource not in found:
        raise Http404("The API has no such resource.")
    return HttpResponse(_page(resource))


@cache
def _page(resource: str) -> str:
    pages = _pages()
    operations = pages.get(resource, [])
    content = render_to_string(
        "documentation/api.html",
        {
            "resource": resource,
            "operations": operations,
            "objects": _objects_of(operations),
            "pages": [(name, _url(name), of) for name, of in pages.items()],
            "schema": reverse("schema"),
        },
    )
    entries = [{"title": name, "url": _url(name), "is_here": name == resource} for name in pages]
    first = {"title": "All operations", "url": reverse("api_docs"), "is_here": not resource}
    context = {
        "title": f"API: {resource}" if resource else "API reference",
        "content": SafeString(content),
        "chapters": [{"anchor": one.name, "title": one.name} for one in operations],
        "groups": [("API reference", [first, *entries])],
        "home": reverse("docs"),
        "stylesheet": static("documentation/docs.css"),
        "icon": static("console/icon.svg"),
        "console": reverse("admin:index"),
        "api": reverse("api_docs"),
        "has_search": True,
    }
    return render_to_string("documentation/page.html", context)


@cache
def _pages() -> dict[str, list[Operation]]:
    """The operations of each resource, in the order of their addresses."""
    found: dict[str, list[Operation]] = {}
    for path, operations in sorted(document()["paths"].items()):
        for method in METHODS:
            if method in operations:
                described = operations[method]
                found.setdefault(described["tags"][0], []).append(_operation(path, method, described))
    return dict(sorted(found.items()))


def _operation(path: str, method: str, described: Mapping[str, Any]) -> Operation:
    contents = described.get("requestBody", {}).get("content", {})
    bodies = {type: content.get("schema", {}) for type, content in contents.items()}
    return Operation(
        name=described["operationId"],
        method=method.upper(),
        path=path,
        said=described.get("description", ""),
        parameters=[_parameter(one) for one in described.get("parameters", ())],
        bodies=[(type, _kind(schema)) for type, schema in bodies.items()],
        answers=[_answer(code, one) for code, one in sorted(described["responses"].items())],
        example=_example(path, method, described, bodies),
    )


def _parameter(one: Mapping[str, Any]) -> Field:
    return Field(
        name=one["name"],
        kind=_kind(one.get("schema", {})),
        note=_note(one),
        is_required=one.get("required", False),
        place=one["in"],
    )


def _answer(code: str, one: Mapping[str, Any]) -> Answer:
    schemas = [content.get("schema", {}) for content in one.get("content", {}).values()]
    return Answer(code=code, said=one.get("description", ""), kind=_kind(schemas[0]) if schemas else Kind(words=""))


def _kind(schema: Mapping[str, Any]) -> Kind:
    if name := schema.get("$ref", "").removeprefix(OBJECTS):
        return Kind(words=name, object=name)
    for several in ("allOf", "oneOf", "anyOf"):
        if several in schema:
            kinds = [_kind(one) for one in schema[several]]
            named = next((one.object for one in kinds if one.object), "")
            words = " or ".join(one.words for one in kinds) + (", or null" if schema.get("nullable") else "")
            return Kind(words=words, object=named)
    or_null = ", or null" if schema.get("nullable") else ""
    if "enum" in schema:
        return Kind(words=" | ".join(json.dumps(value) for value in schema["enum"]) + or_null)
    if schema.get("type") == "array":
        of = _kind(schema.get("items", {}))
        return Kind(words=f"list of {of.words}{or_null}", object=of.object)
    words = WORDS.get(schema.get("format", ""), schema.get("type", "any JSON"))
    return Kind(words=f"{words}{or_null}")


def _note(one: Mapping[str, Any]) -> str:
    """What the document has about a value; values of an enumeration are in its kind."""
    lines = [line for line in one.get("description", "").splitlines() if not line.startswith("* `")]
    return " ".join(lines).strip()


def _objects_of(operations: Sequence[Operation]) -> list[Object]:
    """The objects that operations take and give, and those inside them."""
    wanted = [kind.object for one in operations for kind in _kinds_of(one) if kind.object]
    found: dict[str, Object] = {}
    while wanted:
        name = wanted.pop(0)
        if name not in found:
            found[name] = _object(name)
            wanted += [field.kind.object for field in found[name].fields if field.kind.object]
            wanted += [found[name].kind.object] if found[name].kind.object else []
    return [found[name] for name in sorted(found)]


def _kinds_of(operation: Operation) -> Iterator[Kind]:
    yield from (field.kind for field in operation.parameters)
    yield from (kind for _, kind in operation.bodies)
    yield from (answer.kind for answer in operation.answers)


def _object(name: str) -> Object:
    schema = document()["components"]["schemas"][name]
    required = schema.get("required", ())
    fields = [
        Field(
            name=field,
            kind=_kind(described),
            note=_note(described),
            is_required=field in required and not described.get("readOnly"),
        )
        for field, described in schema.get("properties", {}).items()
    ]
    return Object(name=name, kind=_kind(schema), fields=fields)


def _example(path: str, method: str, described: Mapping[str, Any], bodies: Mapping[str, Any]) -> str:
    """A request on a command line. Names in braces stand for values of the reader's own."""
    lines = ["curl -sS" + ("" if method == "get" else f" -X {method.upper()}") + f' "$SITE{path}"']
    if described.get("security"):
        lines.append('-H "Authorization: Bearer $TOKEN"')
    if "application/json" in bodies:
        body = json.dumps(_value(bodies["application/json"], DEEP), ensure_ascii=False).replace("'", "'\\''")
        lines += ["-H 'Content-Type: application/json'", f"-d '{body}'"]
    return " \\\n  ".join(lines)


def _value(schema: Mapping[str, Any], levels: int) -> Any:
    """A value of this kind, of the fields that are required."""
    if name := schema.get("$ref", "").removeprefix(OBJECTS):
        return _value(document()["components"]["schemas"][name], levels)
    for several in ("allOf", "oneOf", "anyOf"):
        if several in schema:
            return _value(schema[several][0], levels)
    if "enum" in schema:
        return schema["enum"][0]
    if schema.get("type") == "array":
        return [_value(schema["items"], levels - 1)] if levels and "items" in schema else []
    if "properties" in schema:
        fields = {name: one for name, one in schema["properties"].items() if not one.get("readOnly")}
        required = {name: one for name, one in fields.items() if name in schema.get("required", ())} or fields
        return {name: _value(one, levels - 1) for name, one in required.items()} if levels else {}
    return VALUES.get(schema.get("type", ""), {})


def _url(resource: str) -> str:
    return reverse("api_docs_of", args=[resource])
