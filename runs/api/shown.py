"""Stored texts as answers of the API show them."""

from typing import Any

from django.utils.functional import cached_property
from rest_framework import serializers

from agents.kernel.redaction import shown_json

TEXTS = (
    serializers.CharField,
    serializers.JSONField,
    serializers.ListField,
    serializers.DictField,
    serializers.SerializerMethodField,
)
# Names and addresses of Wakeful's own, which clients send back. A secret that is equal to one of them would lock these out.
NAMES = {"id", "slug", "name", "agent", "trigger", "source", "queue", "kind", "part_kind", "status", "url", "digest"}
# What senders, agents and models made, with keys of their own. Any other object has Wakeful's form, which clients read by its keys.
DATA = {
    "data", "headers", "input", "result", "output", "arguments", "decided_arguments", "edited_arguments", "asked", "match", "reads",
    "content", "args", "metadata",
}  # fmt: skip
OTHERS = (serializers.SlugField, serializers.URLField)


class Shown(serializers.Serializer[Any]):
    """A serializer whose stored texts are shown without secrets, value by value; what a view adds to them is left alone, such as
    links to other pages, errors that quote the request, and a secret that is shown once."""

    def to_representation(self, instance: Any) -> Any:
        data = super().to_representation(instance)
        for name in self._texts.intersection(data):
            data[name] = _shown_member(name, data[name])
        return data

    @cached_property
    def _texts(self) -> frozenset[str]:
        return frozenset(
            name
            for name, field in self.fields.items()
            if isinstance(field, TEXTS) and not isinstance(field, OTHERS) and name not in NAMES
        )


def _shown_member(name: str, value: Any) -> Any:
    if name in DATA:
        return shown_json(value)
    if isinstance(value, dict):
        return {inner: one if inner in NAMES else _shown_member(inner, one) for inner, one in value.items()}
    return [_shown_member(name, one) for one in value] if isinstance(value, (list, tuple)) else shown_json(value)
