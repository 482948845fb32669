import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings, setting
from triggers.sources.webhooks.naming import (
    UNNAMED_TYPE,
    body_id,
    event_id,
    event_type,
    header_text,
    is_name,
    time_at,
    value_at,
)
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme
from triggers.sources.webhooks.schemes.standard_webhooks import StandardWebhooks, StandardWebhooksSettings

SIGNING, TOKEN = "signing token", "secret token"
STANDARD = StandardWebhooks()
STANDARD_SETTINGS = StandardWebhooksSettings()


@dataclass(frozen=True, kw_only=True)
class GitLabSettings:
    """Which of GitLab's two proofs is required."""

    proof: str = setting(
        TOKEN,
        "Proof",
        "A signing token (whsec_…) signs id, time and body, so that a leaked delivery is useless after five minutes. A secret token "
        "is sent as it is: use it over https only, and only if your GitLab has no signing tokens.",
        choices=(TOKEN, SIGNING),
    )


@register
class GitLab(Scheme[GitLabSettings]):
    """GitLab sends its secret token in a header, or signs as Standard Webhooks say."""

    name = "gitlab"
    label = "GitLab"
    help_text = "For webhooks of GitLab projects, groups and instances. Events are named by kind and action: merge_request.open."
    group = Group.CODE
    setup = (
        "In the project or group at GitLab, open Settings → Webhooks → Add new webhook.",
        "Enter {url} as URL.",
        "Enter the secret of this source as signing token or as secret token, depending on the setting Proof.",
        "Choose the triggers that agents need, leave SSL verification on, and add the webhook.",
    )
    docs_url = "https://docs.gitlab.com/user/project/integrations/webhooks/"
    secret_label = "Token"
    settings_class = GitLabSettings

    def clean_secret(self, secret: str) -> str:
        token = secret.strip()
        if token.startswith("whsec_"):
            return STANDARD.clean_secret(token)
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise InvalidSettings({"secret": "must be printable ASCII without spaces, as it travels in a header"})
        return token

    def new_secret(self) -> str:
        # GitLab takes it as either token.
        return STANDARD.new_secret()

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: GitLabSettings) -> Proof:
        if settings.proof == SIGNING:
            return STANDARD.prove(delivery, secrets, STANDARD_SETTINGS)
        given = delivery.headers.get("x-gitlab-token")
        if not given:
            raise Rejected("x-gitlab-token is missing: the webhook has no secret token at GitLab")
        return Proof(secret=matching_secret(secrets, lambda secret: hmac.compare_digest(secret, given)))

    def describe(self, delivery: Delivery, proof: Proof, settings: GitLabSettings) -> Description:
        payload = read_payload(delivery.body)
        # Equal, but only webhook-id is signed.
        id_ = header_text(delivery, "webhook-id" if settings.proof == SIGNING else "idempotency-key")
        return Description(
            id=event_id(id_) if id_ else body_id(delivery),
            type=_type(payload.data),
            subject=_subject(payload.data),
            time=time_at(payload.data, "object_attributes.updated_at"),
            payload=payload,
        )

    def sample(self, settings: GitLabSettings) -> Sample:
        body = {
            "object_kind": "merge_request",
            "event_type": "merge_request",
            "user": {"username": "root"},
            "project": {"id": 1, "path_with_namespace": "example/hello-world"},
            "object_attributes": {"iid": 1, "title": "A test event from Wakeful", "action": "open", "state": "opened"},
        }
        id_ = str(uuid4())
        headers = {
            "Content-Type": "application/json",
            "X-Gitlab-Event": "Merge Request Hook",
            "Idempotency-Key": id_,
            **({"webhook-id": id_} if settings.proof == SIGNING else {}),
        }
        return Sample(body=json.dumps(body).encode(), headers=headers)

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: GitLabSettings) -> Mapping[str, str]:
        if settings.proof == SIGNING:
            return STANDARD.sign(sample, secret, at, STANDARD_SETTINGS)
        return {"X-Gitlab-Token": secret.decode()}


def _type(data: Any) -> str:
    """Kind and action, or kind and status, of a project's event; the name of an instance's."""
    kind = value_at(data, "object_kind") or value_at(data, "event_name")
    # Of a pipeline, the status is what has happened; of other objects it is a detail.
    paths = (
        ["object_attributes.status"] if kind == "pipeline" else ["object_attributes.action", "build_status", "status"]
    )
    detail = next((text for path in paths if (text := value_at(data, path))), "")
    return event_type(f"{kind}.{detail}" if kind and detail else kind) or UNNAMED_TYPE


def _subject(data: Any) -> str:
    """The object of the event as GitLab writes it: group/project!number for a merge request, #number for an issue."""
    project = value_at(data, "project.path_with_namespace") or value_at(data, "path_with_namespace") or ""
    number = value_at(data, "object_attributes.iid") or ""
    mark = "!" if value_at(data, "object_kind") == "merge_request" else "#"
    subject = f"{project}{mark}{number}" if number else project
    return subject if is_name(subject) else ""
