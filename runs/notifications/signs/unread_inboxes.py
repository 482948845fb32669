"""Recipients that are the inbox of no user who may log in."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import WARNING, Problem, Sign, is_raised
from runs.users import of_users_who_may_enter

SQL = f"""
SELECT recipient.name, recipient.address FROM runs_recipient recipient
WHERE recipient.channel = 'inbox' AND recipient.active AND NOT EXISTS (
  SELECT {of_users_who_may_enter("substr(recipient.address, 7)")})
ORDER BY {is_raised("'unread-inbox:' || recipient.name")} DESC, recipient.name
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class UnreadInbox:
    name: str
    address: str


def problems(rows: Sequence[UnreadInbox]) -> Iterator[Problem]:
    for unread in rows:
        yield Problem(
            name=f"unread-inbox:{unread.name}",
            severity=WARNING,
            text=f"No user can read what is sent to recipient {unread.name} ({unread.address}): there is no active user of this name "
            "who may log in to the admin.",
            remedy="Give the recipient another address, delete it, or create the user.",
        )


UNREAD_INBOXES = Sign(name="unread_inboxes", sql=SQL, row=UnreadInbox, problems=problems, kinds=("unread-inbox",))
