"""What is recorded of a broker that is away."""

import pytest
from kombu.exceptions import OperationalError

from runs.network import broker


def test_an_answer_that_does_not_come_has_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "breaker", broker.closed_breaker())

    with pytest.raises(OperationalError), broker.producer():
        raise OperationalError from TimeoutError()  # as kombu does when RabbitMQ confirms nothing

    assert broker.breaker.error == "OperationalError: TimeoutError()"
