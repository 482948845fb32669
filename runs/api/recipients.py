"""Recipients of notifications and groups of them over HTTP: to look at, to edit, to silence and to test."""

from collections.abc import Sequence
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.body import Body
from runs.api.interval import IntervalField, SecondsField
from runs.api.notifications import DeliverySerializer
from runs.api.resource import ById, Refusal, Resource, faults_by_field
from runs.api.shown import Shown
from runs.models import Notification, Recipient, RecipientGroup
from runs.notifications.edit import (
    change_group,
    change_recipient,
    create_group,
    create_recipient,
    remove_group,
    remove_recipient,
    send_test,
    silence_for,
)

DURATION = 'seconds, or a text such as "30m"'


class RecipientSerializer(Shown, serializers.ModelSerializer[Recipient]):
    second = serializers.CharField(
        source="second.name", allow_null=True, default=None, help_text="name of its second route"
    )
    spacing = SecondsField(help_text="seconds")
    repeat_after = SecondsField(help_text="seconds")
    second_after = SecondsField(help_text="seconds")

    class Meta:
        model = Recipient
        fields = [
            "id", "name", "address", "channel", "gets_all", "zone", "quiet_from", "quiet_until", "spacing", "digest_hour",
            "least_urgency", "repeat_after", "second", "second_after", "silenced_until", "active", "failing_since",
        ]  # fmt: skip
        read_only_fields = fields


class RecipientBody(Body):
    name = serializers.CharField(required=False, help_text="what agents call it in `to=`")
    address = serializers.CharField(required=False, help_text="mailto:…, https://…, slack+https://…, inbox:<user>, …")
    gets_all = serializers.BooleanField(required=False)
    zone = serializers.CharField(required=False, max_length=100, help_text="of its hours, such as Europe/Vienna")
    quiet_from = serializers.TimeField(required=False, allow_null=True)
    quiet_until = serializers.TimeField(required=False, allow_null=True)
    spacing = IntervalField(required=False, help_text=DURATION)
    digest_hour = serializers.IntegerField(required=False, allow_null=True, help_text="0 to 23")
    least_urgency = serializers.ChoiceField(Notification.Urgency.choices, required=False)
    repeat_after = IntervalField(required=False, help_text=DURATION)
    second = serializers.CharField(required=False, allow_null=True, help_text="name of its second route")
    second_after = IntervalField(required=False, help_text=DURATION)
    silenced_until = serializers.DateTimeField(required=False, allow_null=True)
    active = serializers.BooleanField(required=False)

    def validate_second(self, name: str | None) -> Recipient | None:
        return _named([name])[0] if name else None


class NewRecipientBody(RecipientBody):
    name = serializers.CharField(help_text="what agents call it in `to=`")
    address = serializers.CharField(help_text="mailto:…, https://…, slack+https://…, inbox:<user>, …")


class SilenceBody(Body):
    length = IntervalField(allow_null=True, help_text=f"{DURATION}; null ends the silence")


class RecipientGroupSerializer(Shown, serializers.ModelSerializer[RecipientGroup]):
    members: Any = serializers.SlugRelatedField(slug_field="name", many=True, read_only=True)

    class Meta:
        model = RecipientGroup
        fields = ["id", "name", "members"]
        read_only_fields = fields


class RecipientGroupBody(Body):
    name = serializers.CharField(required=False)
    members = serializers.ListField(
        child=serializers.CharField(), required=False, max_length=1000, help_text="names of recipients"
    )

    def validate_members(self, names: list[str]) -> list[Recipient]:
        return _named(names)


class NewRecipientGroupBody(RecipientGroupBody):
    name = serializers.CharField(help_text="what agents call it in `to=`")


class RecipientResource(Resource):
    required_permissions = {
        "list": "runs.view_recipient",
        "retrieve": "runs.view_recipient",
        "create": "runs.add_recipient",
        "partial_update": "runs.change_recipient",
        "destroy": "runs.delete_recipient",
        "silence": "runs.silence_recipient",
        "test": "runs.test_recipient",
    }
    serializer_class = RecipientSerializer
    pagination_class = ById
    queryset = Recipient.objects.order_by("id")

    def get_queryset(self) -> QuerySet[Recipient]:
        return Recipient.objects.select_related("second").order_by("id")

    def list(self, request: Request) -> Response:
        """Every recipient with its rules; addresses stand without their secret parts."""
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(RecipientSerializer(page, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        """One recipient."""
        return Response(RecipientSerializer(self.get_object()).data)

    @extend_schema(request=NewRecipientBody, responses={201: RecipientSerializer})
    def create(self, request: Request) -> Response:
        """Add a recipient. Rules that are left out have their defaults."""
        body = NewRecipientBody.read(request)
        with faults_by_field():
            made = create_recipient(**body, by=str(request.user))
        return Response(RecipientSerializer(made).data, status=201)

    @extend_schema(request=RecipientBody, responses={200: RecipientSerializer, 409: Refusal})
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the rules that are given. 409: the recipient of WAKEFUL_NOTIFY_TO has its name and address from there."""
        body = RecipientBody.read(request)
        with faults_by_field():
            changed = change_recipient(self.get_object().pk, **body, by=str(request.user))
        return Response(RecipientSerializer(changed).data)

    @extend_schema(responses={204: None, 409: Refusal})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a recipient. Sent notifications stay; waiting ones are suppressed."""
        remove_recipient(self.get_object().pk, by=str(request.user))
        return Response(status=204)

    @extend_schema(request=SilenceBody, responses={200: RecipientSerializer})
    @action(detail=True, methods=["post"])
    def silence(self, request: Request, pk: str) -> Response:
        """Send the recipient nothing for so long, from now on."""
        body = SilenceBody.read(request)
        with faults_by_field(silenced_until="length"):
            changed = silence_for(self.get_object().pk, body["length"], by=str(request.user))
        return Response(RecipientSerializer(changed).data)

    @extend_schema(request=None, responses={200: DeliverySerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send the recipient a test now, regardless of its rules. The delivery shows the outcome."""
        return Response(DeliverySerializer(send_test(self.get_object().pk, by=str(request.user))).data)


class RecipientGroupResource(Resource):
    required_permissions = {
        "list": "runs.view_recipientgroup",
        "retrieve": "runs.view_recipientgroup",
        "create": "runs.add_recipientgroup",
        "partial_update": "runs.change_recipientgroup",
        "destroy": "runs.delete_recipientgroup",
    }
    serializer_class = RecipientGroupSerializer
    pagination_class = ById
    queryset = RecipientGroup.objects.order_by("id")

    def get_queryset(self) -> QuerySet[RecipientGroup]:
        return RecipientGroup.objects.prefetch_related("members").order_by("id")

    def list(self, request: Request) -> Response:
        """Every group with the names of its members."""
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(RecipientGroupSerializer(page, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        """One group."""
        return Response(RecipientGroupSerializer(self.get_object()).data)

    @extend_schema(request=NewRecipientGroupBody, responses={201: RecipientGroupSerializer})
    def create(self, request: Request) -> Response:
        """Give several recipients a name that agents address together."""
        body = NewRecipientGroupBody.read(request)
        with faults_by_field():
            made = create_group(body["name"], body.get("members", []), by=str(request.user))
        return Response(RecipientGroupSerializer(made).data, status=201)

    @extend_schema(request=RecipientGroupBody, responses={200: RecipientGroupSerializer})
    def partial_update(self, request: Request, pk: str) -> Response:
        """Rename a group, replace its members, or both."""
        body = RecipientGroupBody.read(request)
        with faults_by_field():
            changed = change_group(self.get_object().pk, **body, by=str(request.user))
        return Response(RecipientGroupSerializer(changed).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a group; its members stay."""
        remove_group(self.get_object().pk, by=str(request.user))
        return Response(status=204)


def _named(names: Sequence[str]) -> list[Recipient]:
    found = {one.name: one for one in Recipient.objects.filter(name__in=names)}
    if unknown := sorted(set(names) - set(found)):
        raise serializers.ValidationError(f"There is no recipient {unknown[0]!r}. GET recipients/ lists their names.")
    return [found[name] for name in dict.fromkeys(names)]
