"""How many examples of a property are tried: all of them in `make chaos`, a quarter in `make test`."""

import os

FULL = bool(os.environ.get("WAKEFUL_FULL"))


def some_of(examples: int) -> int:
    return examples if FULL else examples // 4
