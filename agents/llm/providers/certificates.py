"""The certificates that this machine trusts, read once by each process instead of once by each client of a provider: that takes as
much CPU as ten requests. A client belongs to one event loop, and each call of run.llm has its own loop; what it trusts does not."""

import ssl
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

from httpx2._transports import default as transports

MADE_BY = "create_ssl_context"


def read_once() -> None:
    """Let the clients of this process share them. A client with a certificate or an authority of its own reads for itself."""
    make: Callable[..., ssl.SSLContext] | None = getattr(transports, MADE_BY, None)
    if make is not None and not hasattr(make, "of_the_machine"):  # another version of httpx has another name for it
        setattr(transports, MADE_BY, _sharing(make))


def _sharing(make: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    @cache
    def of_the_machine(trust_env: bool) -> ssl.SSLContext:
        return make(trust_env=trust_env)

    @wraps(make)
    def context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> ssl.SSLContext:
        is_of_its_own = verify is not True or cert is not None
        return make(verify, cert, trust_env) if is_of_its_own else of_the_machine(trust_env)

    context.of_the_machine = of_the_machine  # type: ignore[attr-defined]
    return context
