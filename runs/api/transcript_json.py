from rest_framework import serializers

from runs.api.resource import Query
from runs.api.shown import Shown


class UsageSerializer(Shown):
    requests = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cache_read_tokens = serializers.IntegerField()
    cache_write_tokens = serializers.IntegerField()
    cost = serializers.DecimalField(max_digits=None, decimal_places=None, help_text="US dollars, as far as it is known")
    unpriced = serializers.IntegerField(help_text="requests whose price is not known")
    builtin = serializers.IntegerField(help_text="requests that the built-in model answered, without a provider")


class PartSerializer(Shown):
    kind = serializers.CharField(
        help_text="system, user, tool-return, retry; answer, thinking; or another of pydantic-ai's"
    )
    text = serializers.CharField(help_text="cut behind 65,536 characters")
    tool = serializers.CharField()
    is_untrusted = serializers.BooleanField(help_text="data of strangers, which stood in a fence")
    is_history = serializers.BooleanField(help_text="given as the history of an earlier conversation")


class ToolCallSerializer(Shown):
    key = serializers.CharField(help_text="of its step in the journal; empty where it has none")
    tool = serializers.CharField()
    call_id = serializers.CharField()
    status = serializers.CharField(
        help_text="done, failed or started; open or denied, of its approval; output, where it is the model's answer; called"
    )
    arguments = serializers.JSONField(allow_null=True, help_text="a text where they are long, or no JSON")
    edited_arguments = serializers.JSONField(allow_null=True, help_text="those that a person made of them")
    result = serializers.JSONField(allow_null=True)
    is_untrusted = serializers.BooleanField(help_text="the result is data of strangers")
    error = serializers.CharField()
    effect = serializers.CharField()
    attempts = serializers.IntegerField()
    claim = serializers.IntegerField(allow_null=True)
    approval = serializers.UUIDField(allow_null=True)
    decision = serializers.CharField()
    began = serializers.DateTimeField(allow_null=True)
    ended = serializers.DateTimeField(allow_null=True)


class TurnSerializer(Shown):
    number = serializers.IntegerField()
    key = serializers.CharField()
    status = serializers.CharField()
    prompt = PartSerializer(many=True, help_text="what this request added to the conversation")
    instructions = serializers.CharField(help_text="empty where they are those of the request before")
    tools = serializers.JSONField(
        help_text="a list, empty where they are those of the request before; descriptions are cut where it is long"
    )
    settings = serializers.JSONField(help_text="empty where they are those of the request before")
    answer = PartSerializer(many=True)
    tool_calls = ToolCallSerializer(many=True)
    model = serializers.CharField(help_text="the one that answered")
    provider = serializers.CharField()
    finish_reason = serializers.CharField()
    usage = UsageSerializer()
    cost = serializers.DecimalField(
        max_digits=None, decimal_places=None, allow_null=True, help_text="US dollars; null where it is not known"
    )
    attempts = serializers.IntegerField(help_text="number of requests to the model")
    error = serializers.CharField()
    claim = serializers.IntegerField(
        help_text="epoch of the claim that sent the request; 0: the run it was forked from sent it"
    )
    replayed_by = serializers.ListField(
        child=serializers.IntegerField(), help_text="claims that were given the recorded answer"
    )
    drifted = serializers.ListField(
        child=serializers.CharField(),
        help_text="earlier requests whose prompts had changed when this one was made; their recorded answers were kept",
    )
    began = serializers.DateTimeField()
    ended = serializers.DateTimeField(allow_null=True)


class CallSerializer(Shown):
    key = serializers.CharField()
    model = serializers.CharField(help_text="the one that was chosen")
    session = serializers.CharField(help_text="whose history it went on with; empty: it was a fresh call")
    is_untrusted = serializers.BooleanField(help_text="it was given data of strangers")
    began = serializers.DateTimeField()
    turns = TurnSerializer(many=True)
    steps = ToolCallSerializer(many=True, help_text="steps of toolsets before the first turn")


class TranscriptSerializer(Shown):
    """The conversation of a run with its models."""

    run = serializers.UUIDField()
    is_kept = serializers.BooleanField(help_text="false: prompts, answers and payloads of tools have been erased")
    usage = UsageSerializer(help_text="of the whole run")
    tool_calls = serializers.IntegerField()
    page = serializers.IntegerField()
    pages = serializers.IntegerField()
    calls = CallSerializer(many=True)


class TranscriptQuery(Query):
    page = serializers.IntegerField(required=False, min_value=1, default=1, help_text="a page has 100 turns")
