"""Real processes connect an account, renew its tokens, use them carelessly, fail and revoke: no token, code or verifier that the provider
has ever seen stands in the clear in the database, a log, a page, an answer of the API, an export, a metric or a trace."""

import re
import subprocess
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from django.conf import settings

from config.stack.embedded.binaries import find_postgres
from runs.models import Connection, OutboxMessage
from tests.integration.protocol import emit
from tests.support.collector import Collector, collecting
from tests.support.connections import later, new_connection
from tests.support.oauth_server import CLIENT_ID, CLIENT_SECRET, OAuthServer, providing_tokens
from tests.support.stack import ROOT, Stack, StackMaker, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

PAGES = 1_000  # more are a fault of the test
EACH = 2
ROUNDS = 3  # of runs, each after the last token has ended
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}|(?<==)[^&]*|(?<=/)[0-9]+(?=/)")
# Addresses that end the session, and what is no page.
LEFT_OUT = re.compile(r"/admin/(logout|jsi18n)|/static/|/docs/|\.(css|js|svg|png|woff2)")
EXPORTS = (
    ("export_events", "--raw"),
    ("export_triggers",),
    ("runs", "--json"),
    ("doctor", "--json"),
    ("schedules", "--json"),
    ("dumpdata",),
)
MARKED = ("database", "log worker.log", "log worker-2.log", "log prompts.log", "command runs --json")
ANSWERS = ("events", "runs", "triggers", "sources", "notifications", "approvals", "schedules", "deliveries")


@pytest.fixture
def provider() -> Iterator[OAuthServer]:
    with providing_tokens() as server:
        yield server


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as server:
        yield server


class Browser:
    """A person at the console."""

    def __init__(self, stack: Stack) -> None:
        self.client = httpx.Client(base_url=stack.url, follow_redirects=True, timeout=120)
        self.client.get("/admin/login/")
        page = self.post(
            "/admin/login/", username="admin", password=stack.env["WAKEFUL_ADMIN_PASSWORD"], next="/admin/"
        )
        assert "Overview" in page.text

    def post(self, path: str, *, follow: bool = True, **form: str) -> httpx.Response:
        given = {**form, "csrfmiddlewaretoken": self.client.cookies["csrftoken"]}
        return self.client.post(path, data=given, follow_redirects=follow)

    def every_page(self) -> Iterator[tuple[str, str]]:
        """Each page that a link leads to, from the first one on: of those that differ by ids and values alone, so many as EACH."""
        waiting, seen, kinds = ["/admin/"], set[str](), Counter[str]()
        while waiting:
            path = waiting.pop(0)
            if path in seen or kinds[kind := ID.sub("#", path)] == EACH:
                continue
            seen.add(path)
            kinds[kind] += 1
            assert len(seen) < PAGES
            page = self.client.get(path)
            assert page.status_code in (200, 400, 404), (path, page.status_code)
            yield path, page.text
            for link in re.findall(r'(?:href|hx-get)="(/[^"#]*)', page.text):
                address = link.replace("&amp;", "&")
                if address.startswith("/admin/") and not LEFT_OUT.search(address):
                    waiting.append(address)


def consent(browser: Browser, connection: Connection) -> None:
    sent = browser.post(f"/admin/runs/connection/{connection.pk}/connect/", follow=False, _form_submitted="1")
    there = sent.headers.get("location") or sent.headers["hx-redirect"]
    back = urlsplit(httpx.get(there.replace("/authorize", "/click") + "&answer=allow").headers["location"])
    page = browser.client.get(f"{back.path}?{back.query}")
    assert "is connected" in page.text


def dumped(stack: Stack) -> str:
    [version] = stack.query("SELECT current_setting('server_version_num')::int / 10000 AS major")
    program = find_postgres(version["major"]).bin / "pg_dump"
    return subprocess.run([program, stack.database_url], capture_output=True, text=True, check=True).stdout


def test_no_token_stands_anywhere_in_the_clear(
    make_stack: StackMaker, provider: OAuthServer, collector: Collector, request: pytest.FixtureRequest
) -> None:
    stack = make_stack(
        env={
            "WAKEFUL_APPS": "postman",
            "PYTHONPATH": str(ROOT / "tests" / "userapps"),
            "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8",
            "WAKEFUL_ENCRYPTION_KEYS": ",".join(settings.WAKEFUL_ENCRYPTION_KEYS),
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        },
        agents=True,
    )
    stack.query("UPDATE triggers_trigger SET policy = policy || '{\"backoff\": 0.2}'")
    stack.admit()
    with stack.orm():
        made = new_connection(provider)
    stack.up(workers=2, beat=False)
    browser = Browser(stack)
    request.addfinalizer(browser.client.close)
    consent(browser, made)

    for number in range(ROUNDS):
        read_by_both_workers(stack, provider, number)
        with stack.orm():
            later(made, 4_000)
    provider.refuses = "temporarily_unavailable"
    emit(stack, "post.read", "refused", url=provider.url, fails=False)
    eventually(lambda: stack.query("SELECT 1 FROM runs_connection WHERE failures > 0"))
    provider.refuses, provider.revoke_status = "", 503
    page = browser.post(f"/admin/runs/connection/{made.pk}/revoke/", _form_submitted="1").text
    with stack.orm():
        assert OutboxMessage.objects.filter(topic="revocation").count() == 1

    texts = {"revoked": page, **everything(stack, browser, collector)}
    assert {f"page /admin/runs/connection/{rest}" for rest in ("", f"{made.pk}/change/")} <= set(texts)
    secrets = [*provider.given, CLIENT_SECRET]
    # A code, its verifier and the client's own; each round but the first renews both tokens.
    assert len(secrets) == 3 + 2 * ROUNDS
    leaks = [
        (name, secret.partition("-")[0]) for name, text in texts.items() for secret in secrets if is_in(text, secret)
    ]
    print(
        f"\n{len(secrets)} secrets, {len(texts)} texts of {sum(map(len, texts.values())):,} characters, {len(leaks)} leaks"
    )
    assert leaks == []
    assert "postman" in texts["traces"] and "wakeful" in texts["metrics"]
    for name in MARKED:  # where the agent wrote one
        assert "[secret]" in texts[name], name


def is_in(text: str, secret: str) -> bool:
    """As it is, as dumped bytes, or as the header that sends it."""
    basic = b64encode(f"{CLIENT_ID}:{secret}".encode()).decode()
    return any(shape in text for shape in (secret, secret.encode().hex(), basic))


def read_by_both_workers(stack: Stack, provider: OAuthServer, number: int) -> None:
    """Runs that need a new token, one after the other and at once, and some that fail with it."""
    before = len(provider.asked)
    for each in range(6):
        emit(stack, "post.read", f"{number}-{each}", url=provider.url, fails=each == 5)
    over = "SELECT 1 FROM runs_run WHERE agent = 'postman' AND finished_at IS NULL"
    eventually(lambda: len(stack.query("SELECT 1 FROM runs_run WHERE agent = 'postman'")) == 6 * (number + 1))
    eventually(lambda: not stack.query(over))
    statuses = [row["status"] for row in stack.query("SELECT status FROM runs_run WHERE agent = 'postman'")]
    assert sorted(statuses) == ["failed"] * (number + 1) + ["succeeded"] * 5 * (number + 1)
    assert len(provider.asked) == before + (number > 0)


def everything(stack: Stack, browser: Browser, collector: Collector) -> dict[str, str]:
    """What is stored, written, shown, answered, exported, measured and traced, by its name."""
    runs = stack.query("SELECT id FROM runs_run ORDER BY seq DESC LIMIT 3")
    paths = [f"/api/v1/{name}/" for name in ANSWERS]
    paths += [f"/api/v1/runs/{run['id']}/{part}" for run in runs for part in ("", "transcript/")]
    found = {f"API {path}": stack.api("GET", path).body.decode() for path in paths}
    found |= {f"page {path}": text for path, text in browser.every_page()}
    found |= {
        f"command {' '.join(words)}": (done := stack.manage(*words, check=False)).stdout + done.stderr
        for words in EXPORTS
    }
    token = {"Authorization": f"Bearer {stack.env['WAKEFUL_API_TOKEN']}"}
    found["metrics"] = stack.request("GET", "/metrics", headers=token).body.decode()
    found["traces"] = "".join(body.decode("utf-8", "replace") for body in collector.bodies)
    found["database"] = dumped(stack)
    found |= {f"log {log.name}": log.read_text(errors="replace") for log in Path(stack.folder).rglob("*.log")}
    return found
