"""A stack on servers of its own, so that nothing else is measured, and that may be killed."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from config.stack import embedded
from tests.support.servers import reachable_folder
from tests.support.stack import Stack, prepare


@contextmanager
def own_stack(
    env: Mapping[str, str], *, durable: bool = True, postgres: Mapping[str, str] | None = None
) -> Iterator[Stack]:
    """Migrated, its agents synced, in a temporary home; `durable`: with fsync, as in production; `postgres`: other settings of the
    server. None of its processes run yet, and all of it is gone afterwards."""
    with ExitStack() as at_end:
        home = at_end.enter_context(reachable_folder(on_disk=True))
        servers = at_end.enter_context(embedded.servers(home, durable=durable, say=lambda line: None))
        assert servers.postgres
        assert servers.valkey
        if postgres:
            servers.postgres.stop()
            servers.postgres.settings = {**servers.postgres.settings, **postgres}
            servers.postgres.start()
        stack = Stack(
            home,
            database_url=servers.postgres.url,
            redis_url=servers.valkey.url,
            env=env,
            servers=servers,
            blocker=None,
        )
        at_end.callback(stack.stop)
        prepare(stack.env, agents=True)
        yield stack
