"""A broker that is not there is an error of its source, with a remedy."""

import pytest

from tests.support.stack import free_port
from triggers.sources.kind import kinds
from triggers.sources.runner import Assignment, Runner, SourceError


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("amqp", {"url": "amqp://127.0.0.1:{port}", "queue": "orders"}),
        ("nats", {"servers": "nats://127.0.0.1:{port}", "stream": "orders"}),
        ("redis_streams", {"url": "redis://127.0.0.1:{port}/0", "stream": "orders"}),
    ],
)
def test_a_broker_that_refuses_the_connection_is_shown_with_a_remedy(kind: str, settings: dict[str, str]) -> None:
    runner = kinds()[kind]
    assert isinstance(runner, Runner)
    given = runner.clean_settings({name: value.format(port=free_port()) for name, value in settings.items()})

    with pytest.raises(SourceError, match="cannot be reached") as caught:
        runner.connect(Assignment(slug="orders", settings=given, secret="", position=None))

    assert "address and port" in caught.value.remedy
