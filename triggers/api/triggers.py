"""`/api/v1/triggers/`"""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import Refusal
from runs.models.policy import REPORTS
from triggers.api.events_json import (
    EventIdSerializer,
    FireBody,
    PauseBody,
    RedispatchBody,
    RedispatchedSerializer,
    ResumeBody,
    TriggerSerializer,
)
from triggers.api.fields import BySlugResource, naming_each
from triggers.api.rules_json import RuleTrialSerializer, TriggerBody, TryRuleBody, rule_of_body, trial_as_json
from triggers.declarations.overrides import override
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import offer_errors
from triggers.matching.trial import try_rule
from triggers.matching.trigger_policy import policy_with
from triggers.models import Trigger
from triggers.reports.destinations import require_known
from triggers.sources.manual import fire


class TriggerResource(BySlugResource):
    """Rules that match events to agents."""

    required_permissions = {
        "list": "triggers.view_trigger",
        "retrieve": "triggers.view_trigger",
        "fire": "triggers.fire_trigger",
        "pause": "triggers.pause_trigger",
        "resume": "triggers.pause_trigger",
        "redispatch": "triggers.replay_event",
        "partial_update": "triggers.change_trigger",
        "try_rule": "triggers.change_trigger",
    }
    queryset = Trigger.objects.select_related("gate")
    serializer_class = TriggerSerializer

    @extend_schema(request=FireBody, responses={202: EventIdSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def fire(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Wake the trigger's agent now, with an event for this trigger only."""
        with naming_each():
            event_id = fire(self.get_object(), **FireBody.read(request), by=str(request.user))
        return Response({"event": event_id}, status=202)

    @extend_schema(request=PauseBody, responses={200: TriggerSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Hold the trigger's events until it is resumed."""
        trigger = pause(self.get_object(), reason=PauseBody.read(request)["reason"], by=str(request.user))
        return Response(self.get_serializer(trigger).data)

    @extend_schema(request=ResumeBody, responses={200: TriggerSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Resume the trigger; run or drop the events it held."""
        trigger = resume(self.get_object(), held=ResumeBody.read(request)["held"], by=str(request.user))
        return Response(self.get_serializer(trigger).data)

    @extend_schema(request=TriggerBody, responses={200: TriggerSerializer})
    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change what the trigger matches, and where it reports. Deploys keep the changed fields."""
        trigger, changes = self.get_object(), dict(TriggerBody.read(request))
        with naming_each():
            if (reports := changes.pop(REPORTS, None)) is not None:
                require_known(reports)
                changes["policy"] = policy_with(trigger.policy, reports)
            trigger = override(trigger, changes, by=str(request.user))
        return Response(self.get_serializer(trigger).data)

    @extend_schema(request=TryRuleBody, responses={200: RuleTrialSerializer})
    @action(detail=False, methods=["post"], url_path="try")
    def try_rule(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Try a rule on recent events, without starting runs; each miss is explained clause by clause. Also requires
        `triggers.view_event`, because the answer has values of events."""
        if not request.user.has_perm("triggers.view_event"):
            self.permission_denied(request)
        body = TryRuleBody.read(request)
        return Response(trial_as_json(try_rule(rule_of_body(body), body["events"])))

    @extend_schema(request=RedispatchBody, responses={200: RedispatchedSerializer})
    @action(detail=True, methods=["post"])
    def redispatch(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Dispatch again all events that ended in an error at this trigger. An event that has a run gets no second run."""
        since = RedispatchBody.read(request)["since"]
        return Response({"events": offer_errors(trigger=self.get_object(), since=since, by=str(request.user))})
