"""Tests of an agent's author ask no provider, unless they say so."""

import asyncio

import pytest
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import models
from pydantic_ai.models.test import TestModel

from agents import AsyncAgentRun
from agents.agent import Agent
from agents.testing import run_agent
from tests.support.wire import Wire

pytestmark = pytest.mark.django_db


def test_a_test_calls_no_provider_unless_it_is_allowed(wire: Wire) -> None:
    wire.script("hello", "hello")
    llm = LlmAgent("openai-chat:gpt-4o", name="greeter")
    agent = Agent(name="asker", body=lambda run: run.llm(llm, wire.prompt("hello", "one")).output, durable=True)

    with pytest.raises(Exception, match="Model requests are not allowed"):
        run_agent(agent)
    assert wire.of("one") == []
    assert run_agent(agent, may_ask_providers=True).result == "hello"


def test_calls_side_by_side_that_end_in_another_order_leave_the_next_test_as_it_was() -> None:
    first, second = LlmAgent(TestModel(), name="first"), LlmAgent(TestModel(), name="second")
    both_began, first_ended = asyncio.Event(), asyncio.Event()

    @first.tool_plain
    async def begin() -> None:
        await both_began.wait()

    @second.tool_plain
    async def outlast() -> None:
        both_began.set()
        await first_ended.wait()

    async def body(run: AsyncAgentRun) -> None:
        async def ask_first() -> None:
            await run.llm(first, "hello", key="first")
            first_ended.set()

        await asyncio.gather(ask_first(), run.llm(second, "hello", key="second"))

    run_agent(Agent(name="asker", body=body, durable=True))

    assert models.ALLOW_MODEL_REQUESTS
