"""Requests to the API with a token, without a web process. Every answer is held against the OpenAPI schema."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.test import Client

from tests.support.openapi import require_as_described, schema
from triggers.api.tokens import ALL, create_token


class Api:
    """`Api(["runs.view_run"]).get("runs/")`: answers with the JSON parsed."""

    def __init__(self, permissions: Iterable[str] = (ALL,), name: str = "ci") -> None:
        self.token, self.plain = create_token(name, permissions, by="test")
        schema()  # before a test replaces parts of what it describes
        self.client = Client(headers={"Authorization": f"Bearer {self.plain}"})

    def get(self, path: str, **query: Any) -> "Answer":
        return _answer(self.client.get(f"/api/v1/{path}", query))

    def post(self, path: str, body: Any = b"") -> "Answer":
        return _answer(self.client.post(f"/api/v1/{path}", body, content_type="application/json"))

    def patch(self, path: str, body: Any) -> "Answer":
        return _answer(self.client.patch(f"/api/v1/{path}", body, content_type="application/json"))

    def put(self, path: str, body: Any) -> "Answer":
        return _answer(self.client.put(f"/api/v1/{path}", body, content_type="application/json"))

    def delete(self, path: str) -> "Answer":
        return _answer(self.client.delete(f"/api/v1/{path}"))


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    body: Any


def _answer(response: Any) -> Answer:
    require_as_described(response)
    return Answer(status=response.status_code, body=response.json() if response.content else None)
