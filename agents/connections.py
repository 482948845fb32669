"""Requests in the name of an account that people have connected: what a step or a tool gets from `run.connection`.

    @agent("mail-triage", durable=True, connections=["gmail"], triggers=[…])
    def mail_triage(run: AgentRun) -> None:
        run.step("unread", unread, run, effect="read")

    def unread(run: AgentRun) -> list[str]:
        with run.connection("gmail") as http:
            return ids_of(http.get("https://gmail.googleapis.com/gmail/v1/users/me/messages?q=is:unread"))

The client sends the access token, and only to the hosts of the connection's provider, by https, at public addresses; it follows no
redirect elsewhere.
"""

from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any

import httpx2 as httpx

from agents.exceptions import NetworkRefused, NotConnected, Permanent
from agents.frameworks.tools import is_in_tool
from agents.guards.addresses import CheckedSyncTransport, CheckedTransport, Refused
from agents.guards.http import is_allowed, is_private
from agents.journal.begun import Begun, current
from agents.journal.concurrent import in_main_thread
from agents.kernel.connecting import Lease, lease
from agents.models import PromptAgentVersion

READING = frozenset({"GET", "HEAD", "OPTIONS"})
SECONDS = 30.0  # for each wait of a request
UNAUTHORIZED = 401


@dataclass(frozen=True, kw_only=True)
class Use:
    """The use of a connection in a step, and what the step may do by it: only read, for this reason, or anything."""

    name: str
    agent: str
    acts_for: str | None = None  # `agents.kernel.connecting.MayUse`
    only_reads: str = ""
    may_retry: bool = True
    is_in_step: bool = True  # of the author's code; False: in a tool of a model

    def lease(self, refused: str = "") -> Lease:
        given = lease(self.name, refused=refused, may_retry=self.may_retry)
        if given.owner and self.acts_for is not None and given.owner != self.acts_for:
            raise NotConnected(
                f"connection {self.name!r} belongs to {given.owner!r}, for whom this agent does not act: edit the agent, and choose "
                "another connection"
            )
        if given.owner and self.acts_for and PromptAgentVersion.acts_for(self.agent) not in (None, self.acts_for):
            # Since then others may write its checklist, which a run of any version reads.
            raise NotConnected(
                f"connection {self.name!r} belongs to {given.owner!r}, for whom the newest version of agent {self.agent!r} does not act: "
                "requeued and waiting runs of its earlier versions do not, either"
            )
        return given


def use_of(name: str, agent: str, *, acts_for: str | None = None, is_tainted: bool, harmless: bool) -> Use:
    """What the running step may do by the connection. Permanent: there is no step, or it is transactional."""
    step = current.get()
    if step is None:
        raise Permanent(
            f"run.connection({name!r}) stands outside of steps, where a replay would repeat its requests: call it in run.step(…) or "
            'in a tool, with effect="read", "idempotent" or "at_most_once"'
        )
    if step.request.effect == "transactional":
        raise NetworkRefused(
            f"step {step.key!r} of agent {agent!r} is transactional: its transaction is open, so it must not use the network "
            f'(run.connection({name!r})). Give it effect="read", "idempotent" or "at_most_once".'
        )
    only_reads = _why_only_reads(step, is_tainted=is_tainted, harmless=harmless)
    # A Retry of an at_most_once step says that nothing has happened, and its body may have done something else before.
    return Use(
        name=name,
        agent=agent,
        acts_for=acts_for,
        only_reads=only_reads,
        may_retry=step.request.effect != "at_most_once",
        is_in_step=step.request.kind == "step",
    )


def _why_only_reads(step: Begun, *, is_tainted: bool, harmless: bool) -> str:
    if step.request.effect == "read":
        return f'step {step.key!r} has effect="read"'
    if not is_tainted or harmless:
        return ""
    if step.request.kind == "tool" and not step.request.is_dangerous:
        return (
            "the run has seen untrusted data, and the tool is not declared dangerous, so no person has seen this call. Declare it "
            "with dangerous=True, or call run.connection(…, harmless=True) where no stranger could gain by it"
        )
    if step.request.kind == "step" and is_in_tool():
        return (
            "the run has seen untrusted data, and the step is in a tool that a model has called. Write in a node or in the body, after a "
            "person has approved it, or call run.connection(…, harmless=True) where no stranger could gain by it"
        )
    return ""


def client(use: Use) -> httpx.Client:
    first = use.lease()
    transport = _Checked(use, first, CheckedSyncTransport(first.networks))
    return httpx.Client(transport=transport, auth=_Bearer(use, first), timeout=SECONDS, trust_env=False)


def async_client(use: Use, first: Lease) -> httpx.AsyncClient:
    transport = _AsyncChecked(use, first, CheckedTransport(first.networks))
    return httpx.AsyncClient(transport=transport, auth=_Bearer(use, first), timeout=SECONDS, trust_env=False)


class _Bearer(httpx.Auth):
    """Sends the token. If a host refuses it (its clock may be ahead, or the token was revoked), the request is repeated once with
    another one: it has not been carried out."""

    def __init__(self, use: Use, first: Lease) -> None:
        self._use, self._lease = use, first

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        response = yield _with(request, self._lease)
        if _may_be_repeated(request, response) and self._is_another(self._use.lease(refused=self._lease.token)):
            yield _with(request, self._lease)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        response = yield _with(request, self._lease)
        if _may_be_repeated(request, response):
            renewed = await in_main_thread(self._use.lease, refused=self._lease.token)
            if self._is_another(renewed):
                yield _with(request, self._lease)

    def _is_another(self, lease: Lease) -> bool:
        if lease.hosts != self._lease.hosts:  # to which the client was opened
            raise Refused(f"connection {self._use.name!r} was changed meanwhile, and sends its token to other hosts")
        before, self._lease = self._lease, lease
        return before.token != lease.token


def _with(request: httpx.Request, lease: Lease) -> httpx.Request:
    request.headers["Authorization"] = f"Bearer {lease.token}"
    return request


def _may_be_repeated(request: httpx.Request, response: httpx.Response) -> bool:
    """Was its token refused? A body that was streamed cannot be sent again."""
    try:
        return response.status_code == UNAUTHORIZED and request.content is not None
    except httpx.RequestNotRead:
        return False


def check(use: Use, lease: Lease, request: httpx.Request) -> None:
    """Refused: the token must not go there. Permanent: the step must not do that."""
    if not is_allowed(request.url, lease.hosts):
        raise Refused(
            f"connection {use.name!r} sends its token to {', '.join(lease.hosts)} only, and not to {request.url.host!r}"
        )
    if not is_private(request.url):
        raise Refused(f"connection {use.name!r} sends its token by https only")
    if use.only_reads and request.method not in READING:
        raise Permanent(f"{request.method} by connection {use.name!r} is refused: {use.only_reads}")


class _Checked(httpx.BaseTransport):
    """Below redirects, so that none of them leads elsewhere."""

    def __init__(self, use: Use, lease: Lease, inner: httpx.BaseTransport) -> None:
        self._use, self._lease, self._inner = use, lease, inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        check(self._use, self._lease, request)
        return self._inner.handle_request(request)

    def close(self) -> None:
        self._inner.close()


class _AsyncChecked(httpx.AsyncBaseTransport):
    def __init__(self, use: Use, lease: Lease, inner: httpx.AsyncBaseTransport) -> None:
        self._use, self._lease, self._inner = use, lease, inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        check(self._use, self._lease, request)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class Opening:
    """What `AsyncAgentRun.connection` gives: `async with run.connection("gmail") as http`."""

    def __init__(self, use: Callable[[], Use]) -> None:
        self._use = use
        self._client: httpx.AsyncClient | None = None

    async def __aenter__(self) -> httpx.AsyncClient:
        use = await in_main_thread(self._use)
        self._client = async_client(use, await in_main_thread(use.lease))
        return self._client

    async def __aexit__(self, *_: Any) -> None:
        if self._client is not None:
            await self._client.aclose()
