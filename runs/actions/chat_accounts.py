"""Accounts at chats by which users decide approvals there.

A user makes a code in the console and sends it from their account where no one else reads it. So the link rests on two proofs: of the user,
by the login; and of the account, by the provider's proof of the message. Names count for nothing. A code is known by its hash alone, ends
after ten minutes and is used once; one that others may have read is revoked.
"""

import re
import secrets
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction

from agents.guards.atomic import not_in_atomic_body
from agents.kernel.redaction import know
from runs.db.sql import database_now
from runs.exceptions import IllegalState, RunError
from runs.models import ChatAccount, ChatLinkCode, audit
from runs.users import may_enter

LASTS = timedelta(minutes=10)
CODE = re.compile(r"\bwkl_[A-Za-z0-9_-]{32}(?![A-Za-z0-9_-])")
RIGHT = "runs.decide_approval"
LONGEST = 200  # characters of a name
MOST = 20  # accounts of a user


class NotLinked(RunError):
    """The account is not linked; the message gives the reason and what to do."""


def may_decide(user: Any) -> bool:
    """May this user decide approvals, now?"""
    return bool(user.is_active) and may_enter(user) and user.has_perm(RIGHT)


@not_in_atomic_body
def make_code(user: Any, source_id: UUID, *, by: str) -> str:
    """A code that links the account it is sent from, at this source. It replaces the user's last one."""
    if not may_decide(user):
        raise IllegalState(f"{user.get_username()} may not decide approvals", "refused")
    code = f"wkl_{secrets.token_urlsafe(24)}"
    know(code)
    values = {"code_sha256": _hash(code), "source_id": source_id, "expires_at": database_now() + LASTS}
    with transaction.atomic():
        ChatLinkCode.objects.update_or_create(user=user, defaults=values)
        audit.record_about(by, "make link code", "chataccount", "*", source=str(source_id))
    return code


@not_in_atomic_body
def link_account(
    code: str, *, way: str, source_id: UUID, secret_id: int, workspace: str, account: str, name: str
) -> ChatAccount:
    """Link the account that has sent a code to the user who made it. Raises NotLinked."""
    try:
        with transaction.atomic():
            user = _take(code, source_id)
            values = {"secret_id": secret_id, "name": name[:LONGEST], "user": user, "linked_at": database_now()}
            found = ChatAccount.objects.select_for_update(of=["self"])
            known = found.filter(source_id=source_id, workspace=workspace, account=account).first()
            if known and known.user_id != user.pk and known.secret_id == secret_id:
                raise NotLinked("This account is linked to another person, who has to unlink it in the console first.")
            if known is None and found.filter(user=user).count() >= MOST:
                raise NotLinked(f"{MOST} accounts are linked to you already. Unlink some in the console first.")
            linked, _ = ChatAccount.objects.update_or_create(
                source_id=source_id, workspace=workspace, account=account, defaults=values
            )
            audit.record(
                f"{way}:{user.get_username()}",
                "link",
                linked,
                source=str(source_id),
                account=str(linked),
                name=linked.name,
            )
            return linked
    except IntegrityError:
        raise NotLinked("The account is being linked already. Make a new code in the console, and try again.") from None


@not_in_atomic_body
def revoke_code(code: str) -> None:
    """Others may have read it, at whichever source: they could use it at its own."""
    ChatLinkCode.objects.filter(code_sha256=_hash(code)).delete()


@not_in_atomic_body
def unlink_account(account_id: int, *, by: str, of: Any = None) -> None:
    """End a link; `of`: only if it is this user's. Raises ChatAccount.DoesNotExist."""
    with transaction.atomic():
        found = ChatAccount.objects.select_for_update(of=["self"]).select_related("user")
        linked = found.get(pk=account_id, **({} if of is None else {"user": of}))
        audit.record(by, "unlink", linked, account=str(linked), user=linked.user.get_username())
        linked.delete()


def _take(code: str, source_id: UUID) -> Any:
    """The user who made the code, which is used up."""
    found = ChatLinkCode.objects.select_for_update(of=["self"]).select_related("user")
    made = found.filter(code_sha256=_hash(code), source_id=source_id).first()
    if made is None or made.expires_at < database_now():
        raise NotLinked(
            "This code is unknown here, was used, or is older than ten minutes. Make a new one in the console."
        )
    user = made.user
    made.delete()
    if not may_decide(user):
        raise NotLinked(f"{user.get_username()} may not decide approvals.")
    return user


def _hash(code: str) -> str:
    return sha256(code.encode()).hexdigest()
