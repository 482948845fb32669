"""Connections over HTTP: to look at, to test and to revoke. They are made and connected in the admin, where a person consents."""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import ById, Refusal, Resource
from runs.api.shown import Shown
from runs.connections.ending import revoke_connection, test_connection
from runs.models import Connection


class ConnectionSerializer(Shown, serializers.ModelSerializer[Connection]):
    class Meta:
        model = Connection
        fields = [
            "id", "name", "provider", "grant", "owner", "state", "reason", "scopes", "granted", "expires_at", "refresh_expires_at",
            "connected_at", "connected_by", "refreshed_at", "failures", "failing_since", "retry_at",
        ]  # fmt: skip
        read_only_fields = fields


class OutcomeSerializer(Shown):
    outcome = serializers.CharField(help_text="what came of it, as a sentence")


class ConnectionResource(Resource):
    required_permissions = {
        "list": "runs.view_connection",
        "retrieve": "runs.view_connection",
        "test": "runs.test_connection",
        "revoke": "runs.connect_connection",
    }
    serializer_class = ConnectionSerializer
    pagination_class = ById
    queryset = Connection.objects.defer("client_secret", "access_token", "refresh_token").order_by("id")

    def list(self, request: Request) -> Response:
        """Every connection with its state; no secret and no token is shown."""
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(ConnectionSerializer(page, many=True).data)

    def retrieve(self, request: Request, pk: str) -> Response:
        """One connection."""
        return Response(ConnectionSerializer(self.get_object()).data)

    @extend_schema(request=None, responses={200: OutcomeSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Have the provider give a new token now."""
        return _answer(test_connection(self.get_object().pk, by=str(request.user)))

    @extend_schema(request=None, responses={200: OutcomeSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def revoke(self, request: Request, pk: str) -> Response:
        """Delete its tokens, and have the provider end them."""
        return _answer(revoke_connection(self.get_object().pk, by=str(request.user)))


def _answer(outcome: str) -> Response:
    return Response(OutcomeSerializer({"outcome": outcome}).data)
