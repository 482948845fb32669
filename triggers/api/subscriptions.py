"""`/api/v1/subscriptions/` and `/api/v1/event-deliveries/`: where events leave to, and what became of each."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.body import Body
from runs.api.interval import IntervalField
from runs.api.resource import Query, Refusal, Resource, faults_by_field
from runs.api.shown import Shown
from triggers.api.fields import BySlugResource, InstantInUtc
from triggers.models import EventDelivery, Subscription
from triggers.outbound.edit import change_subscription, create_subscription, remove_subscription
from triggers.outbound.redeliver import redeliver, redeliver_failed
from triggers.outbound.secrets import GRACE, rotate
from triggers.outbound.test_event import send_test


class SubscriptionSerializer(Shown, serializers.ModelSerializer[Subscription]):
    class Meta:
        model = Subscription
        fields = [
            "id", "slug", "address", "sources", "types", "filter", "enabled", "disabled_reason", "failing_since", "error",
            "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class NewSubscriptionSerializer(SubscriptionSerializer):
    secret = serializers.CharField(read_only=True, help_text="signs what is sent; it cannot be read again")

    class Meta(SubscriptionSerializer.Meta):
        fields = [*SubscriptionSerializer.Meta.fields, "secret"]
        read_only_fields = fields


class TrySerializer(Shown):
    at = serializers.DateTimeField()
    status = serializers.IntegerField(allow_null=True, required=False, help_text="of the answer; null: none came")
    seconds = serializers.FloatField(required=False)
    answer = serializers.CharField(required=False, help_text="its first bytes")
    error = serializers.CharField(help_text="why the attempt failed; empty: it was delivered")


class EventDeliverySerializer(Shown, serializers.ModelSerializer[EventDelivery]):
    subscription = serializers.CharField(source="name", help_text="slug of the subscription, also after its deletion")
    webhook_id = serializers.SerializerMethodField(help_text="as the receiver gets it, the same with every attempt")
    tries = TrySerializer(many=True, help_text="the last attempts, oldest first")

    class Meta:
        model = EventDelivery
        fields = [
            "id", "webhook_id", "event", "subscription", "status", "reason", "due_at", "attempts", "entered_at", "ended_at",
            "tries",
        ]  # fmt: skip
        read_only_fields = fields

    def get_webhook_id(self, delivery: EventDelivery) -> str:
        return delivery.webhook_id


class SubscriptionBody(Body):
    url = serializers.CharField(required=False, help_text="https://…; it is stored encrypted")
    sources = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="globs of source slugs; empty: any"
    )
    types = serializers.ListField(child=serializers.CharField(), required=False, help_text="event type globs")
    filter = serializers.CharField(required=False, allow_blank=True, help_text="CEL over `event`; empty: every event")
    enabled = serializers.BooleanField(required=False)


class NewSubscriptionBody(SubscriptionBody):
    slug = serializers.CharField()
    url = serializers.CharField(help_text="https://…; it is stored encrypted")
    types = serializers.ListField(child=serializers.CharField(), help_text="event type globs, such as invoice.* or *")
    secret = serializers.CharField(required=False, help_text="whsec_…, of the receiver's own; without it one is made")


class RotateBody(Body):
    secret = serializers.CharField(required=False, help_text="whsec_…, of the receiver's own; without it one is made")
    grace = IntervalField(
        required=False, default=GRACE, help_text='how long the old ones sign as well: seconds, or "24h"'
    )


class SecretSerializer(Shown):
    secret = serializers.CharField(help_text="it cannot be read again")


class RedeliverBody(Body):
    since = InstantInUtc(help_text="all that failed and were entered from this time on; in UTC if it has no offset")


class RedeliveredSerializer(Shown):
    deliveries = serializers.IntegerField(help_text="how many are sent again; at most 10,000 at once")


class SubscriptionResource(BySlugResource):
    """Where events leave to, as signed webhooks."""

    required_permissions = {
        "list": "triggers.view_subscription",
        "retrieve": "triggers.view_subscription",
        "create": "triggers.add_subscription",
        "partial_update": "triggers.change_subscription",
        "destroy": "triggers.delete_subscription",
        "rotate": "triggers.change_subscription",
        "redeliver": "triggers.redeliver_subscription",
        "test": "triggers.redeliver_subscription",
    }
    queryset = Subscription.objects.defer("ciphertext")
    serializer_class = SubscriptionSerializer

    @extend_schema(request=NewSubscriptionBody, responses={201: NewSubscriptionSerializer})
    def create(self, request: Request) -> Response:
        """Add a subscription. The answer has its secret, which cannot be read again."""
        body = NewSubscriptionBody.read(request)
        with faults_by_field():
            made, secret = create_subscription(body.pop("slug"), **body, by=str(request.user))
        return Response({**SubscriptionSerializer(made).data, "secret": secret}, status=201)

    @extend_schema(request=SubscriptionBody, responses={200: SubscriptionSerializer})
    def partial_update(self, request: Request, slug: str) -> Response:
        """Change the given fields. Disabling a subscription fails its waiting deliveries; after enabling it again, new events are sent."""
        body = SubscriptionBody.read(request)
        with faults_by_field():
            changed = change_subscription(self.get_object(), body, by=str(request.user))
        return Response(SubscriptionSerializer(changed).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, slug: str) -> Response:
        """Delete a subscription. Waiting deliveries fail; outcomes of earlier ones stay."""
        remove_subscription(self.get_object(), by=str(request.user))
        return Response(status=204)

    @extend_schema(request=RotateBody, responses={200: SecretSerializer})
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, slug: str) -> Response:
        """Sign with a new secret, and with the old ones as well for a time."""
        body = RotateBody.read(request)
        with faults_by_field():
            secret = rotate(self.get_object(), **body, by=str(request.user))
        return Response({"secret": secret})

    @extend_schema(request=RedeliverBody, responses={200: RedeliveredSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def redeliver(self, request: Request, slug: str) -> Response:
        """Send all that failed since a time again."""
        since = RedeliverBody.read(request)["since"]
        return Response({"deliveries": redeliver_failed(self.get_object(), since=since, by=str(request.user))})

    @extend_schema(request=None, responses={200: EventDeliverySerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, slug: str) -> Response:
        """Send a test event, through its queue. It wakes no agent."""
        return Response(EventDeliverySerializer(send_test(self.get_object(), by=str(request.user))).data)


class EventDeliveryQuery(Query):
    subscription = serializers.CharField(required=False, help_text="slug of a subscription")
    status = serializers.ChoiceField(EventDelivery.Status.choices, required=False)
    event = serializers.UUIDField(required=False)


class EventDeliveryResource(ListModelMixin, RetrieveModelMixin, Resource):
    """Deliveries of events to subscriptions."""

    required_permissions = {
        "list": "triggers.view_eventdelivery",
        "retrieve": "triggers.view_eventdelivery",
        "redeliver": "triggers.redeliver_subscription",
    }
    queryset = EventDelivery.objects.all()
    serializer_class = EventDeliverySerializer

    def get_queryset(self) -> QuerySet[EventDelivery]:
        found = EventDelivery.objects.all()
        if self.action != "list":
            return found
        asked = EventDeliveryQuery.read(self.request)
        if slug := asked.pop("subscription", ""):
            # By the index of the subscription; one that was deleted is found by the event.
            found = found.filter(subscription_id__in=Subscription.objects.filter(slug=slug).values("pk"))
        return found.filter(**{"event_id" if name == "event" else name: value for name, value in asked.items()})

    @extend_schema(parameters=[EventDeliveryQuery])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Deliveries, newest first."""
        return super().list(request, *args, **kwargs)

    @extend_schema(request=None, responses={200: EventDeliverySerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def redeliver(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Send the event to the subscription again, with the same `webhook-id`."""
        again = redeliver(self.get_object().pk, by=str(request.user))
        return Response(EventDeliverySerializer(again).data)
