"""pydantic-ai alone, which keeps nothing of an agent's run; commands from standard input."""

import asyncio
import time

from bench.ground.pace import serve
from bench.llm_agent import NO_LIMIT, talker

plain = talker("plain")


def turns(count: int) -> float:
    """Seconds of a run of so many turns."""
    return asyncio.run(talk(count))


async def talk(count: int) -> float:
    began = time.perf_counter()
    await plain.run(str(count), usage_limits=NO_LIMIT)
    return time.perf_counter() - began


if __name__ == "__main__":
    serve({"turns": turns})
