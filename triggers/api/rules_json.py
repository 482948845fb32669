"""The match rule of a trigger as JSON, and its trial."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from rest_framework import serializers

from agents.kernel.redaction import shown
from agents.kernel.report import MOST
from runs.api.body import Body
from runs.api.shown import Shown
from triggers.api.fields import ReportSerializer
from triggers.matching.expressions.cel import ExpressionError, check_condition, check_expression
from triggers.matching.index import Rule
from triggers.matching.trial import SHOWN, Trial

TYPES = "event type globs, such as invoice.*"


class Expression(serializers.CharField):
    """CEL over `event`; a refusal names line, column and the text at fault."""

    check = staticmethod(check_expression)

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"required": False, "allow_blank": True, **options})

    def to_internal_value(self, data: Any) -> Any:
        text = super().to_internal_value(data)
        try:
            if text:
                self.check(text)
        except ExpressionError as error:
            raise serializers.ValidationError(str(error)) from None
        return text


class Condition(Expression):
    check = staticmethod(check_condition)


class RuleBody(Body):
    """Fields that are left out stay as they are."""

    source = serializers.CharField(required=False, allow_blank=True, help_text="slug; empty: any")  # type: ignore[assignment]  # a field, by its metaclass
    types = serializers.ListField(child=serializers.CharField(), required=False, help_text=TYPES)
    filter = Condition(help_text="CEL; empty: every event of these types")
    key = Condition(help_text="CEL; empty: one key")
    input = serializers.DictField(child=Expression(), required=False, help_text="input name → CEL; empty: the data")


class TriggerBody(RuleBody):
    reports = serializers.ListField(
        child=ReportSerializer(), required=False, max_length=MOST, help_text="where the outcome of its runs goes"
    )


class TryRuleBody(RuleBody):
    events = serializers.IntegerField(
        required=False, default=SHOWN, min_value=1, max_value=SHOWN, help_text="how many recent events to try"
    )


class LineSerializer(Shown):
    text = serializers.CharField()
    state = serializers.CharField(help_text="true, false, error, or value")
    level = serializers.IntegerField()
    why = serializers.CharField()
    reads = serializers.DictField(child=serializers.CharField(), help_text="the fields it reads, and their values")


class VerdictSerializer(Shown):
    event = serializers.UUIDField()
    type = serializers.CharField()
    source = serializers.CharField()  # type: ignore[assignment]  # a field, by its metaclass
    result = serializers.CharField(help_text="yes, no, error, or not tried")
    why = serializers.CharField()
    key = serializers.CharField()
    input = serializers.DictField(child=serializers.CharField())
    clauses = LineSerializer(many=True)


class TypeSerializer(Shown):
    type = serializers.CharField()
    events = serializers.IntegerField()
    is_matched = serializers.BooleanField()


class RuleTrialSerializer(Shown):
    matching = serializers.IntegerField()
    events = VerdictSerializer(many=True)
    types = TypeSerializer(many=True, help_text="of the newest events of its source")


def rule_of_body(body: Mapping[str, Any]) -> Rule:
    """A rule that only matches."""
    return Rule(
        id=uuid4(), slug="trial", agent="", source=body.get("source", ""), types=tuple(body.get("types", ["*"])),
        filter=body.get("filter", ""), key=body.get("key", ""), input=body.get("input", {}),
    )  # fmt: skip


def trial_as_json(trial: Trial) -> dict[str, Any]:
    return {
        "matching": trial.matching,
        "events": [
            {
                "event": one.event.pk,
                "type": shown(one.event.type),
                "source": one.event.source.slug,
                "result": one.result,
                "why": one.why,
                "key": one.key,
                "input": one.input,
                "clauses": [
                    {
                        "text": line.text,
                        "state": line.state,
                        "level": line.level,
                        "why": line.why,
                        "reads": dict(line.reads),
                    }
                    for line in one.lines
                ],
            }
            for one in trial.verdicts
        ],
        "types": [
            {"type": shown(type), "events": count, "is_matched": is_heard} for type, count, is_heard in trial.types
        ],
    }
