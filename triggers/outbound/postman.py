"""The dispatcher's thread that has events sent to subscriptions."""

from typing import ClassVar

from runs.queues.courier import Sender
from triggers.outbound.deliver import Outbound


class Postman(Sender):
    name_of = "postman"
    rest: ClassVar[float] = 0.05  # a subscription that is away makes no other one wait

    def __init__(self) -> None:
        super().__init__()
        self.deliverer: Outbound = Outbound(wake=self.send)
