"""What a place of replies is, and how one posts as an account that people have connected."""

import json
import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Protocol

import httpx2 as httpx
from cryptography.fernet import InvalidToken
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connection

from agents.exceptions import NotConnected, ProviderAway
from agents.guards.http import is_allowed, is_private
from agents.kernel.connecting import lease
from runs.network.posting import CutOff, NotHandedOver, PostResponse, post
from runs.notifications.channels.channel import CONNECT, WHOLE, NotNow, Outcome, Refused, Unknown
from runs.notifications.channels.webhook import outcome_of
from runs.notifications.message import Message, Request
from runs.notifications.replies import ERASED_PLACE
from runs.notifications.requests import in_text

KEPT = 4_000  # bytes of an answer
WHOLE_ANSWER = 100_000  # bytes of one that has the message in it


class Place(Protocol):
    """No method quotes what a server has answered beyond its error code. `can_tell_repeats`: as of a channel."""

    name: ClassVar[str]
    can_tell_repeats: ClassVar[bool]

    def send(self, to: Mapping[str, Any], message: Message) -> Outcome:
        """Send it, within about a minute. Any thread may call it."""


@cache
def places() -> Mapping[str, Place]:
    """Every place by its name."""
    import runs.notifications.places as package

    modules = [import_module(one.name) for one in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    found: list[Place] = [module.PLACE for module in modules if hasattr(module, "PLACE")]
    return {place.name: place for place in found}


def send_reply(kind: str, to: Mapping[str, Any], message: Message) -> Outcome:
    """Send it from a thread of its own: the session of the database in which a token was read ends with it."""
    if to == ERASED_PLACE:
        return Refused(why="its run was erased")
    try:
        return places()[kind].send(to, message)
    except NotConnected as error:
        return Refused(why=str(error))
    except ProviderAway as error:
        return NotNow(why=str(error), is_away=False)
    except (InvalidToken, ImproperlyConfigured):
        return NotNow(why="no key in WAKEFUL_ENCRYPTION_KEYS decrypts its secret", is_away=False)
    except DatabaseError as error:  # what is sent by is read before anything is sent
        return NotNow(why=f"the database did not answer: {type(error).__name__}", is_away=False)
    finally:
        connection.close()


def text_of(message: Message) -> str:
    """The answer alone: no sender and no link stand below it. A request as text, where there are no buttons."""
    return in_text(message.request) if message.request else message.items[0].text


def request_of(message: Message) -> Request:
    if message.request is None:
        raise ValueError("this place takes requests alone")
    return message.request


def post_as(
    name: str, url: str, body: Mapping[str, Any], headers: Mapping[str, str], *, keep: int = KEPT
) -> PostResponse | Outcome:
    """POST JSON in the name of a connection; with the outcome, if there is no answer. A refused token is renewed once."""
    token = ""
    for _ in range(2):
        leased = lease(name, refused=token, may_retry=False)
        address = httpx.URL(url)
        if not is_allowed(address, leased.hosts) or not is_private(address):
            return Refused(why=f"connection {name} sends its token to {', '.join(leased.hosts)} only, by https")
        if token == leased.token:
            break
        token = leased.token
        answer = post_json(url, body, {**headers, "Authorization": f"Bearer {token}"}, leased.networks, keep=keep)
        if not isinstance(answer, PostResponse) or answer.status != 401:
            return answer
    return Refused(why=f"it refuses the token of connection {name}")


def post_json(
    url: str, body: Mapping[str, Any], headers: Mapping[str, str], networks: Any, *, keep: int = KEPT
) -> PostResponse | Outcome:
    content = json.dumps(body, ensure_ascii=False).encode()
    given = {"Content-Type": "application/json; charset=utf-8", **headers}
    try:
        return post(url, content, given, connect=CONNECT, whole=WHOLE, keep=keep, networks=networks)
    except NotHandedOver as error:
        return NotNow(why=str(error))
    except CutOff as error:
        return Unknown(why=f"handed over, and then: {error}")


def judged(answer: PostResponse | Outcome) -> Outcome:
    """By its status alone."""
    return outcome_of(answer) if isinstance(answer, PostResponse) else answer
