"""How an operation stands in the OpenAPI schema: under a name that reads well in a client, with the refusals that all operations share."""

from typing import Any

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiResponse, inline_serializer
from rest_framework import serializers

VERBS = {"retrieve": "get", "update": "replace", "partial_update": "update", "destroy": "delete"}
PROBLEM = inline_serializer("Problem", {"detail": serializers.CharField(help_text="why, in words")})
FAULTS = {"$ref": "#/components/schemas/Faults"}  # stands in the settings: the value of a field has no one form
RETRY_AFTER = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds", "required": True}}


class Operations(AutoSchema):
    """`runs_list`, `runs_get`, `runs_cancel`: the resource and what is done to it; and the answers besides a success."""

    def get_operation_id(self) -> str:
        resource, *rest = self._tokenize_path()
        view: Any = self.view
        action = view.action
        is_extra = action in {extra.__name__ for extra in view.get_extra_actions()}
        return f"{resource}_{rest[-1] if is_extra else VERBS.get(action, action)}".replace("-", "_")

    def _get_response_bodies(self, direction: Any = "response") -> dict[str, Any]:
        bodies: dict[str, Any] = super()._get_response_bodies(direction)
        if self.path.startswith("/api/"):
            for code, refusal in self._refusals().items():
                if code not in bodies:
                    bodies[code] = self._get_response_for_code(refusal, code, direction=direction)  # type: ignore[no-untyped-call]
        return dict(sorted(bodies.items()))

    def _get_response_headers_for_code(self, status_code: str, direction: Any = "response") -> dict[str, Any]:
        headers: dict[str, Any] = super()._get_response_headers_for_code(status_code, direction)
        return headers | RETRY_AFTER if status_code in ("429", "503") else headers

    def _refusals(self) -> dict[str, OpenApiResponse]:
        """What any operation with such parameters and such a body may answer."""
        has_body = self._get_request_body() is not None  # type: ignore[no-untyped-call]
        places = {parameter["in"] for parameter in self._get_parameters()}
        refusals = {
            "401": OpenApiResponse(PROBLEM, "no valid token"),
            "403": OpenApiResponse(PROBLEM, "the token lacks the permission"),
            "503": OpenApiResponse(PROBLEM, "the database does not answer, or too much waits"),
        }
        if has_body or "query" in places:
            refusals["400"] = OpenApiResponse(FAULTS, "the request is not valid")
        if "path" in places:
            refusals["404"] = OpenApiResponse(PROBLEM, "no such object")
        if has_body:
            refusals["411"] = OpenApiResponse(PROBLEM, "no Content-Length")
            refusals["413"] = OpenApiResponse(PROBLEM, "the body is too large")
        return refusals
