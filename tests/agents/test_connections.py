"""An agent acts for an account by the connections that it declares: in steps and tools, and by no more than they are declared to do."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.models.test import TestModel

from agents import AgentRun, AsyncAgentRun, agent
from agents.exceptions import DeclarationError, NetworkRefused, Permanent, StepFailed
from agents.guards.addresses import Refused, networks_of
from agents.kernel import connecting
from agents.kernel.connecting import Lease
from agents.testing import AgentResult, Unanswered, assert_replays, run_agent
from tests.support.oauth_server import OAuthServer, providing_tokens

pytestmark = pytest.mark.django_db
Body = Callable[[AgentRun], Any]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[OAuthServer]:
    with providing_tokens() as server:
        server.allow(access="first-token-1234")

        def lease(name: str, /, *, refused: str = "", may_retry: bool = True) -> Lease:
            if refused:
                server.allow(access="second-token-1234")
            token = "second-token-1234" if refused else "first-token-1234"
            return Lease(token=token, hosts=[server.host], networks=networks_of(["127.0.0.0/8"]))

        monkeypatch.setattr(connecting._port, "lease", lease)
        yield server


def do(body: Body, *, effect: Any = "read", **more: Any) -> AgentResult:
    @agent("connected", durable=True, connections=["mail"])
    def connected(run: AgentRun) -> Any:
        return run.step("call", body, run, effect=effect)

    return run_agent(connected, **more)


def test_a_step_reads_in_the_name_of_the_account(api: OAuthServer) -> None:
    def read(run: AgentRun) -> Any:
        with run.connection("mail") as http:
            return http.get(f"{api.url}/messages").json()

    done = do(read)

    assert done.result == {"mail": ["one", "two"]}
    assert done.is_tainted  # strangers write mail
    assert api.called == [("GET", "/messages", 200)]
    assert_replays(done)
    assert len(api.called) == 1


def test_what_no_stranger_writes_taints_nothing(api: OAuthServer) -> None:
    def read(run: AgentRun) -> Any:
        with run.connection("mail", trusted=True) as http:
            return http.get(f"{api.url}/messages").status_code

    assert not do(read).is_tainted


async def read_async(run: AsyncAgentRun, url: str) -> Any:
    async with run.connection("mail") as http:
        return (await http.get(url)).json()


def test_an_async_agent_gets_an_async_client(api: OAuthServer) -> None:
    @agent("connected-async", durable=True, connections=["mail"])
    async def connected(run: AsyncAgentRun) -> Any:
        return await run.step("call", read_async, run, f"{api.url}/messages", effect="read")

    assert run_agent(connected).result == {"mail": ["one", "two"]}


def test_a_token_that_is_refused_is_replaced_once(api: OAuthServer) -> None:
    api.withdraw()

    def write(run: AgentRun) -> Any:
        with run.connection("mail") as http:
            return http.post(f"{api.url}/drafts", json={"text": "hello"}).status_code

    assert do(write, effect="idempotent").result == 200
    assert api.called == [("POST", "/drafts", 401), ("POST", "/drafts", 200)]

    api.forbids = True
    assert do(write, effect="idempotent").result == 401
    assert len(api.called) == 4


@pytest.mark.parametrize("path", ["https://example.com/x", "http://example.com/x", "{api}/elsewhere"])
def test_the_token_goes_to_no_other_host(path: str, api: OAuthServer) -> None:
    def call(run: AgentRun) -> Any:
        with run.connection("mail") as http, pytest.raises(Refused, match="sends its token to 127.0.0.1"):
            http.get(path.format(api=api.url), follow_redirects=True)

    do(call)


def test_a_new_token_goes_only_where_the_client_was_opened_to(
    api: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.withdraw()
    leased = connecting._port.lease
    assert leased

    def changed_meanwhile(name: str, /, *, refused: str = "", may_retry: bool = True) -> Lease:
        given = leased(name, refused=refused, may_retry=may_retry)
        return replace(given, hosts=["api.example.com"]) if refused else given

    monkeypatch.setattr(connecting._port, "lease", changed_meanwhile)

    def call(run: AgentRun) -> Any:
        with run.connection("mail") as http, pytest.raises(Refused, match="was changed meanwhile"):
            http.get(f"{api.url}/messages")

    do(call)
    assert api.called == [("GET", "/messages", 401)]


def test_a_step_that_reads_cannot_write(api: OAuthServer) -> None:
    def write(run: AgentRun) -> Any:
        with run.connection("mail") as http:
            http.delete(f"{api.url}/messages/1")

    with pytest.raises(StepFailed, match="DELETE by connection 'mail' is refused: step 'call' has effect=\"read\""):
        do(write)
    assert not api.called


@pytest.mark.parametrize(
    ("effect", "name", "error", "match"),
    [
        ("transactional", "mail", StepFailed, "so it must not use the network .run.connection.'mail'.."),
        ("read", "other", StepFailed, "may not use connection 'other': declare it in connections=.…., which has mail"),
    ],
)
def test_a_use_that_is_not_declared_is_refused(
    effect: Any, name: str, error: type[Exception], match: str, api: OAuthServer
) -> None:
    with pytest.raises((error, NetworkRefused, Permanent), match=match):
        do(lambda run: run.connection(name), effect=effect)


def test_a_connection_outside_of_steps_is_refused(api: OAuthServer) -> None:
    @agent("outside", durable=True, connections=["mail"])
    def outside(run: AgentRun) -> None:
        run.connection("mail")

    with pytest.raises(Permanent, match="stands outside of steps, where a replay would repeat its requests"):
        run_agent(outside)


def test_an_atomic_agent_declares_no_connection() -> None:
    with pytest.raises(DeclarationError, match="connections requires durable=True"):
        agent("atomic", connections=["mail"])
    with pytest.raises(DeclarationError, match="must be a list or a mapping of names"):
        agent("one", durable=True, connections="mail")


def test_an_agent_may_call_a_connection_by_another_name(api: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    leased_names: list[str] = []
    leased = connecting._port.lease
    assert leased

    def lease(name: str, /, **more: Any) -> Lease:
        leased_names.append(name)
        return leased(name, **more)

    monkeypatch.setattr(connecting._port, "lease", lease)

    def read(run: AgentRun) -> Any:
        with run.connection("mail") as http:
            return http.get(f"{api.url}/messages").json()

    @agent("renaming", durable=True, connections={"mail": "shop-mail"})
    def renaming(run: AgentRun) -> Any:
        return run.step("call", read, run, effect="read")

    run_agent(renaming)

    assert leased_names == ["shop-mail"]


def triage(api: OAuthServer, *, strangers: bool, harmless: bool = False, **metadata: Any) -> AgentResult:
    @agent("triage", durable=True, connections=["mail"])
    def triaging(run: AgentRun) -> Any:
        llm: LlmAgent[None, str] = LlmAgent(name="triage")

        @llm.tool_plain(metadata={"trusted": True, **metadata})
        def label() -> str:
            with run.connection("mail", harmless=harmless) as http:
                return str(http.post(f"{api.url}/labels").status_code)

        return run.llm(llm, "Label it.", untrusted="mail" if strangers else None).output

    return run_agent(triaging, model=TestModel())


def test_a_tool_writes_in_a_run_that_no_stranger_has_reached(api: OAuthServer) -> None:
    assert "200" in triage(api, strangers=False).result


def test_in_a_tainted_run_only_a_tool_that_asks_first_writes(api: OAuthServer) -> None:
    with pytest.raises(StepFailed, match="the tool is not declared dangerous, so no person has seen this call"):
        triage(api, strangers=True)
    with pytest.raises(Unanswered):  # it asks
        triage(api, strangers=True, dangerous=True)
    assert not api.called

    assert "200" in triage(api, strangers=True, harmless=True).result


def test_the_client_shows_no_token(api: OAuthServer) -> None:
    said = []

    def read(run: AgentRun) -> None:
        with run.connection("mail") as http:
            said.append(repr(http) + repr(vars(http)) + repr(http.get(f"{api.url}/x").request))

    do(read)
    assert "token-1234" not in said[0]
