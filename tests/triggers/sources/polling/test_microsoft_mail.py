"""Mail of Microsoft 365 by Graph and a connection, against a server that gives the shapes of its reference."""

import json
from collections.abc import Iterator
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from django.db import transaction

from runs.connections import lease as leases
from tests.support.connections import connected
from tests.support.list_server import ListServer, Page
from tests.support.oauth_server import providing_tokens
from tests.support.secrets import forgotten as forgotten
from tests.triggers.sources.polling.conftest import Polling
from triggers.sources.polling import by_connection, microsoft_mail
from triggers.sources.runner import Batch, Received, SourceError

pytestmark = pytest.mark.django_db


class Folder(dict[str, Page]):
    def __init__(self, site: ListServer) -> None:
        super().__init__()
        self.site = site
        self.there: list[dict[str, Any]] = []
        self.is_draft: set[str] = set()
        self.expired = False
        self.filters: list[str] = []

    def add(self, id: str, *, received: str = "2026-11-26T10:00:00Z") -> None:
        self.there.append({"id": id, "receivedDateTime": received, "isDraft": False})

    def get(self, path: str, default: Any = None) -> Page:
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path.endswith("/$value"):
            return self.one(unquote(parts.path.split("/")[-2]))
        if "/mailFolders/inbox/" not in parts.path:
            return answer({"error": {"code": "ErrorItemNotFound", "message": "Not found."}}, 404)
        if "from" not in query:
            self.filters.append(query["$filter"])
            is_again = len(self.filters) > 1 or "1970" in query["$filter"]
            return self.page(0 if is_again else len(self.there))
        if self.expired:
            return answer({"error": {"code": "SyncStateNotFound", "message": "Resync."}}, 410)
        return self.page(int(query["from"]))

    def page(self, first: int) -> Page:
        found = self.there[first : first + 2]
        is_last = first + 2 >= len(self.there)
        name = "@odata.deltaLink" if is_last else "@odata.nextLink"
        link = self.site.url(f"/me/mailFolders/inbox/messages/delta?from={first + len(found)}")
        return answer({"value": found, name: link})

    def one(self, id: str) -> Page:
        if id not in {one["id"] for one in self.there} or id == "deleted":
            return answer({"error": {"message": "Not found."}}, 404)
        mail = EmailMessage()
        mail["From"], mail["Subject"], mail["Message-ID"] = "Anna <anna@example.org>", id, f"<{id}@example.org>"
        mail.set_content("Hello")
        return Page(mail.as_bytes())


def answer(found: Any, status: int = 200) -> Page:
    return Page(json.dumps(found).encode(), status)


@pytest.fixture
def folder(site: ListServer, settings: Any, forgotten: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folder]:
    for module in (leases, by_connection):  # in the session of the test
        monkeypatch.setattr(module, "to_its_end", lambda act: act())
    monkeypatch.setattr(leases, "writing", transaction.atomic)
    monkeypatch.setattr(microsoft_mail, "API", site.url("/me"))
    with providing_tokens() as provider:
        connected(provider, "mail", settings={**provider.settings, "hosts": [urlsplit(site.url()).netloc]})
        site.pages = folder = Folder(site)
        yield folder


def subjects(batch: Batch) -> list[str]:
    return [one.payload.data["subject"] for one in batch.messages if isinstance(one, Received)]


def test_each_message_that_has_come_is_one_event_in_the_shape_of_a_mailbox(folder: Folder) -> None:
    folder.add("old")
    source = Polling("microsoft_mail", connection="mail")
    assert subjects(source.poll()) == []
    for id in ("a", "b", "deleted", "c/d+e=", "f"):
        folder.add(id)
    folder.there.append({"id": "g", "@removed": {"reason": "changed"}})
    folder.there.append({"id": "draft", "receivedDateTime": "", "isDraft": True})

    batch = source.poll()

    assert sorted(subjects(batch)) == ["a", "b", "c/d+e=", "f"]
    first = batch.messages[0]
    assert isinstance(first, Received) and (first.type, first.id) == ("mail.received", "message:a")
    assert first.subject == "anna@example.org" and first.body
    assert subjects(source.poll()) == []
    assert "ImmutableId" in folder.site.asked[-1][1]["prefer"]


def test_a_delta_that_has_expired_is_a_gap_and_the_last_days_are_read_again(folder: Folder) -> None:
    source = Polling("microsoft_mail", connection="mail")
    source.poll()
    folder.add("late", received="2026-11-26T11:00:00Z")
    folder.add("early")
    folder.expired = True

    batch = source.poll()

    assert subjects(batch) == ["early", "late"] and len(batch.gaps) == 1
    folder.expired = False
    assert subjects(source.poll()) == [] and len(folder.filters) == 2


def test_all_messages_are_those_that_are_there(folder: Folder) -> None:
    for number in range(5):
        folder.add(f"m{number}")

    assert subjects(Polling("microsoft_mail", connection="mail", begin_with="all").poll()) == [
        f"m{n}" for n in range(5)
    ]


def test_a_folder_that_does_not_exist_is_an_error_with_a_remedy(folder: Folder) -> None:
    with pytest.raises(SourceError, match="answers 404: Not found.") as refused:
        Polling("microsoft_mail", connection="mail", folder="nowhere").poll()
    assert "the folder" in refused.value.remedy
