"""What people do by a delivery that is no event: they press a button of a request for a decision, or link their account."""

from typing import Any
from uuid import UUID

from django.db import transaction

from runs.actions.chat_accounts import NotLinked, link_account, revoke_code
from runs.actions.pressed_buttons import PressedButton, press
from runs.db.sql import fetch
from triggers.accept import STATE, SourceChanged
from triggers.sources.webhooks.endpoint import Endpoint
from triggers.sources.webhooks.proof import SigningSecret
from triggers.sources.webhooks.scheme import Act, Press, Reply, SentCode

# The lock keeps edits of the source out until what its delivery does is committed.
UNCHANGED = f"""
SELECT FROM triggers_source source WHERE id = %s::uuid AND enabled AND {STATE} = %s::bytea FOR SHARE
"""  # noqa: S608  (a constant)
EXPOSED = "Others may have read this code, so it is revoked. Make a new one in the console, and send it where no one else reads it."


def carry_out(endpoint: Endpoint, act: Act, secret: SigningSecret | None) -> Reply:
    """Do it, and answer the person. SourceChanged: the source is not as it was when the delivery was verified, and nothing is done."""
    scheme, settings = endpoint.cleaned
    with transaction.atomic():
        if not fetch(UNCHANGED, [endpoint.id, endpoint.state]):
            raise SourceChanged
        words, is_done = _do(endpoint, act, secret, settings)
        return scheme.answer_act(act, words, is_refusal=not is_done, settings=settings)


def _do(endpoint: Endpoint, act: Act, secret: SigningSecret | None, settings: Any) -> tuple[str, bool]:
    """What the person is shown, and whether it is done."""
    if secret is None:  # nothing proves who acts
        return "This delivery has no proof.", False
    if isinstance(act, SentCode):
        return _link(endpoint.id, endpoint.kind, act, secret)
    if not endpoint.scheme.asks(settings):
        return "Approvals are switched off at this source. Decide in the console.", False
    return _press(endpoint.id, endpoint.kind, act, secret)


def _press(source_id: UUID, kind: str, act: Press, secret: SigningSecret) -> tuple[str, bool]:
    button = PressedButton(
        way=kind,
        source_id=source_id,
        secret_id=secret.id,
        workspace=act.workspace,
        account=act.account,
        request=act.request,
        message=act.message,
        choice=act.choice,
        text=act.text,
    )
    answered = press(button)
    return answered.words, answered.is_decided


def _link(source_id: UUID, kind: str, act: SentCode, secret: SigningSecret) -> tuple[str, bool]:
    if not act.is_private:
        revoke_code(act.code)
        return EXPOSED, False
    try:
        linked = link_account(
            act.code,
            way=kind,
            source_id=source_id,
            secret_id=secret.id,
            workspace=act.workspace,
            account=act.account,
            name=act.name,
        )
    except NotLinked as refused:
        return str(refused), False
    return f"Linked: this account now decides approvals as {linked.user.get_username()}.", True
