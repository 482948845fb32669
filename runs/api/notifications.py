"""Notifications over HTTP: their texts, and their delivery to each recipient."""

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.body import Body
from runs.api.resource import Query, Refusal, Resource
from runs.api.shown import Shown
from runs.models import Delivery, Notification
from runs.notifications.resolve import acknowledge, resolve


class NotificationSerializer(Shown, serializers.ModelSerializer[Notification]):
    to = serializers.ListField(
        child=serializers.CharField(), help_text="names it was sent to; empty: everyone who gets all"
    )

    class Meta:
        model = Notification
        fields = ["id", "sender", "run_id", "urgency", "text", "topic", "link", "to", "created_at", "planned_at"]
        read_only_fields = fields


class DeliverySerializer(Shown, serializers.ModelSerializer[Delivery]):
    recipient = serializers.CharField(
        source="name", help_text="name of the recipient, also if there is none of this name"
    )

    class Meta:
        model = Delivery
        fields = [
            "id", "notification", "recipient", "channel", "status", "reason", "merged_into", "due_at", "attempts", "error",
            "created_at", "sent_at", "ended_at", "acknowledged_at", "acknowledged_by",
        ]  # fmt: skip
        read_only_fields = fields


class NotificationQuery(Query):
    run = serializers.UUIDField(required=False)


class DeliveryQuery(Query):
    status = serializers.ChoiceField(Delivery.Status.choices, required=False)
    recipient = serializers.CharField(required=False, help_text="name of a recipient")
    notification = serializers.IntegerField(required=False)


class ResolveDeliveryBody(Body):
    outcome = serializers.ChoiceField(
        ["arrived", "send_again"], help_text="arrived: of an unknown delivery; send_again: of an unknown or failed one"
    )


class NotificationResource(ListModelMixin, RetrieveModelMixin, Resource):
    required_permissions = {"list": "runs.view_notification", "retrieve": "runs.view_notification"}
    serializer_class = NotificationSerializer
    queryset = Notification.objects.all()

    def get_queryset(self) -> QuerySet[Notification]:
        found = Notification.objects.all()
        if self.action == "list" and (run := NotificationQuery.read(self.request).get("run")):
            found = found.filter(run_id=run)
        return found

    @extend_schema(parameters=[NotificationQuery])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Notifications, newest first."""
        return super().list(request, *args, **kwargs)

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One notification."""
        return super().retrieve(request, *args, **kwargs)


class DeliveryResource(ListModelMixin, RetrieveModelMixin, Resource):
    required_permissions = {
        "list": "runs.view_delivery",
        "retrieve": "runs.view_delivery",
        "resolve": "runs.resolve_delivery",
        "acknowledge": "runs.acknowledge_delivery",
    }
    serializer_class = DeliverySerializer
    queryset = Delivery.objects.all()

    def get_queryset(self) -> QuerySet[Delivery]:
        found = Delivery.objects.all()
        if self.action == "list":
            asked = DeliveryQuery.read(self.request)
            columns = {"status": "status", "recipient": "name", "notification": "notification_id"}
            found = found.filter(**{columns[name]: value for name, value in asked.items()})
        return found

    @extend_schema(parameters=[DeliveryQuery])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Deliveries, one for each notification and recipient, newest first."""
        return super().list(request, *args, **kwargs)

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """One delivery."""
        return super().retrieve(request, *args, **kwargs)

    @extend_schema(request=ResolveDeliveryBody, responses={200: DeliverySerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def resolve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Say that a delivery of an unknown outcome arrived, or send an unknown or failed one again."""
        delivery: Delivery = self.get_object()
        body = ResolveDeliveryBody.read(request)
        return Response(self.get_serializer(resolve(delivery.pk, outcome=body["outcome"], by=str(request.user))).data)

    @extend_schema(request=None, responses={200: DeliverySerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def acknowledge(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Say that the message was seen; a second time changes nothing."""
        delivery: Delivery = self.get_object()
        return Response(self.get_serializer(acknowledge(delivery.pk, by=str(request.user))).data)
