"""A request to a model that a run leaves to another process: written down whole, or not at all, and made from that there."""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from django.db import InterfaceError, OperationalError
from pydantic import TypeAdapter
from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.fallback import FallbackModel
from pydantic_core import PydanticSerializationError

from agents.exceptions import Permanent, describe
from agents.guards.storable import storable
from agents.journal.budget import NoRoom, Price, Spends, Unreachable
from agents.journal.concurrent import in_main_thread
from agents.llm.costs.metered import MeteredModel
from agents.llm.costs.prices import Prices
from agents.llm.costs.usage import usage_of_recorded
from agents.llm.providers import certificates, failures
from agents.llm.providers.models import named, without_retries
from agents.llm.providers.serving import models_of
from agents.llm.requests import secrets
from agents.llm.requests.answers import recordable

PARAMETERS: TypeAdapter[ModelRequestParameters] = TypeAdapter(ModelRequestParameters)
KEPT_HERE = frozenset({"extra_headers", "extra_body"})  # settings that may carry keys
LONGEST = 600.0  # seconds
MOST_OF_A_CLIENT = 100  # requests at once: for each of them a client looks at all of its connections
LARGEST = 2**18  # bytes, as JSON: a caller has a thousand of them in its memory


def content_of(
    names: Sequence[str],
    model: Model,
    messages: Sequence[ModelMessage],
    settings: Mapping[str, Any] | None,
    parameters: ModelRequestParameters,
    *,
    prompt: str,
) -> dict[str, Any] | None:
    """The request as JSON; None where a part of it is not JSON, carries a key or is too large. `prompt` is its fingerprint."""
    if KEPT_HERE.intersection(settings or {}):
        return None
    try:
        content: dict[str, Any] = {
            "models": list(names),
            "urls": _urls(model),
            "messages": _told(messages),
            "settings": dict(settings or {}),
            "parameters": PARAMETERS.dump_python(parameters, mode="json"),
            "prompt": prompt,
        }
        kept = json.loads(json.dumps(storable(content, "the request")))
        is_whole = (
            kept == content
            and PARAMETERS.validate_python(kept["parameters"]) == parameters
            and _told(ModelMessagesTypeAdapter.validate_python(kept["messages"])) == kept["messages"]
        )
    except (Permanent, PydanticSerializationError, TypeError, ValueError):
        return None
    return content if is_whole and len(json.dumps(content)) <= LARGEST else None


def _told(messages: Sequence[ModelMessage]) -> Any:
    return ModelMessagesTypeAdapter.dump_python(list(messages), mode="json")


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The output of the request's step, and its usage."""

    output: Any
    usage: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Postponed:
    """Its provider is busy, or the database was away before it was sent: try again after so many seconds."""

    seconds: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class HandedBack:
    """The run has to make the request itself: what becomes of it is decided there. `is_unmade`: it was certainly not worked on."""

    reason: str
    is_unmade: bool = False


End = Answered | Postponed | HandedBack


class Pays(Spends, Protocol):
    @property
    def prices(self) -> Sequence[Price]:
        """Those that operators have set, as the last reservation read them."""


class Requests:
    """Makes requests on one event loop, through few clients for each provider. Close it on that loop."""

    def __init__(self) -> None:
        self._clients_of: dict[tuple[str, ...], list[Client]] = {}
        self._clients = AsyncExitStack()
        self._opening = asyncio.Lock()

    async def make(self, content: Mapping[str, Any], spends: Pays, *, tries: int, is_once: bool = False) -> End:
        """Make the request; this is try number `tries`. Only a cancellation is raised."""
        if tries > failures.TRIES:
            reason = f"it was taken {tries} times without an answer: perhaps it kills its process"
            return HandedBack(reason=reason, is_unmade=True)
        is_sent = False
        try:
            client = await self._client(content)
            messages = ModelMessagesTypeAdapter.validate_python(content["messages"])
            parameters = PARAMETERS.validate_python(content["parameters"])
            settings: Any = {"max_retries": 0, **content["settings"]}
            metered = MeteredModel(client.model, spends)
            is_sent = True
            with client.used():
                async with asyncio.timeout(LONGEST):
                    response = await metered.request(messages, settings, parameters)
            answer = recordable(JSON_CODEC.dump(ModelResponse, response))
            usage = usage_of_recorded(answer, metered, Prices(spends.prices))
            return Answered(output={"prompt": content["prompt"], "answer": answer}, usage=usage)
        except NoRoom as error:
            return HandedBack(reason=error.refusal.reason, is_unmade=True)
        except Exception as error:
            is_away = isinstance(error, Unreachable)
            is_unmade = not is_sent or is_away or failures.is_uncharged(error)
            if (is_away or failures.passes(error)) and tries < failures.TRIES and (is_unmade or not is_once):
                return Postponed(seconds=failures.seconds_until_next(error, tries), reason=describe(error))
            return HandedBack(reason=describe(error), is_unmade=is_unmade)

    async def close(self) -> None:
        await self._clients.aclose()

    async def _client(self, content: Mapping[str, Any]) -> "Client":
        names = tuple(content["models"])
        async with self._opening:
            clients = self._clients_of.setdefault(names, [])
            client = next((client for client in clients if client.requests < MOST_OF_A_CLIENT), None)
            if client is None:
                made = await asyncio.to_thread(_made, names)  # the first one loads the client of its provider
                try:
                    await in_main_thread(secrets.learn, made)
                except (OperationalError, InterfaceError) as error:
                    raise Unreachable(describe(error)) from error
                client = Client(await self._clients.enter_async_context(made))
                clients.append(client)
        if _urls(client.model) != content["urls"]:
            raise Permanent("the provider of this process has another address than that of the run's worker")
        return client


class Client:
    """A model with connections of its own."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.requests = 0  # under way

    @contextmanager
    def used(self) -> Iterator[None]:
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1


def _made(names: Sequence[str]) -> Model:
    certificates.read_once()
    each = [named(name) for name in names]
    return without_retries(FallbackModel(*each) if len(each) > 1 else each[0])


def _urls(model: Model) -> list[str | None]:
    return [each.base_url for each in models_of(model)]


Content = Callable[[], Mapping[str, Any] | None]
