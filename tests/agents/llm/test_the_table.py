"""The table of docs/llm.md about pydantic-ai inside run.llm: each row is held by tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILDERS, DOOR, OUTPUTS = "llm/test_what_builders_expect.py", "llm/door/test_door.py", "llm/test_outputs.py"
HELD_BY = {
    "tools of the agent, `args_validator`, `deps`, `ToolReturn` with files": [
        (BUILDERS, "test_a_tool_that_gives_a_picture"),
        (BUILDERS, "test_deps_of_ones_own_and_agents_without_a_name"),
        (BUILDERS, "test_arguments_are_validated_once_and_the_model_gets_the_fault"),
    ],
    "structured output: tool, native, prompted, union": [(BUILDERS, "test_a_structured_output_is_validated_and_replayed")],
    "output functions, `TextOutput`": [
        (OUTPUTS, "test_an_output_function_is_called_once_and_a_replay_is_given_what_it_returned"),
    ],
    "output validators": [
        (OUTPUTS, "test_an_output_validator_of_a_function_runs_in_its_step"),
        (OUTPUTS, "test_an_output_validator_without_a_function_runs_again_and_may_only_read"),
    ],
    "`toolsets=`, `capabilities=` of one call; `agent.override(toolsets=…)`; `@agent.toolset(id=…)`; capabilities of the agent": [
        (DOOR, "test_a_call_is_a_step_with_the_effect_of_its_tool"),
        (DOOR, "test_a_dangerous_call_needs_one_approval_and_is_made_once"),
        (DOOR, "test_no_call_passes_the_tool_cap"),
    ],
    "an `AbstractToolset` of your own": [
        (DOOR, "test_a_call_is_a_step_with_the_effect_of_its_tool"),
        (DOOR, "test_a_toolset_of_ones_own_lists_its_tools_again_on_a_replay"),
    ],
    "MCP servers": [
        (DOOR, "test_tools_of_an_mcp_server_are_called_once_and_untrusted_unless_metadata_trusts_them"),
        ("llm/providers/test_provider.py", "test_the_tools_of_an_mcp_server_are_steps"),
    ],
    "an agent called in a tool": [
        (DOOR, "test_an_agent_that_is_run_by_itself_inside_a_run_is_refused_by_name"),
        ("llm/test_delegates.py", "test_requests_and_tools_of_a_delegate_are_steps_of_the_run"),
    ],
    "`agent.run`, `run_sync`, `run_stream`, `iter` in a body, step or tool": [
        (DOOR, "test_an_agent_that_is_run_by_itself_inside_a_run_is_refused_by_name"),
    ],
    "`agent.realtime`, `pydantic_ai.direct`, a model's own `request` in a body, step or tool": [
        ("guards/test_llm_calls.py", "test_a_realtime_session_inside_a_run_is_refused"),
        ("guards/test_llm_calls.py", "test_a_request_to_a_model_by_itself_inside_a_run_is_refused"),
        ("guards/test_llm_calls.py", "test_a_direct_method_call_of_a_model_inside_a_run_is_refused"),
    ],
    "`Embedder`, `ImageGenerator`": [
        ("guards/test_llm_calls.py", "test_embeddings_and_pictures_may_be_requested_inside_a_run"),
    ],
    "`MCPToolset(sampling_model=…)`": [(DOOR, "test_a_server_that_may_ask_a_model_itself_is_refused_by_name")],
    "`run.llm` in a tool, a tool that calls another tool": [
        (BUILDERS, "test_run_llm_in_a_tool_is_refused_by_name"),
        (DOOR, "test_a_tool_that_is_called_inside_another_is_refused_by_name"),
    ],
    'a toolset or capability whose one tool calls the tools it wraps ("code mode")': [
        (DOOR, "test_a_toolset_whose_tool_calls_the_tools_that_it_wraps_is_refused_by_name"),
    ],
    "two agents side by side (async, each with a `key`)": [(BUILDERS, "test_two_agents_side_by_side")],
    "`message_history`, a second call on the history of the first": [
        (BUILDERS, "test_a_history_and_a_second_call_on_the_history_of_the_first"),
    ],
    "pictures, documents, URLs, `CachePoint` in the prompt": [
        (BUILDERS, "test_files_in_the_prompt"),
        (BUILDERS, "test_files_in_the_prompt_beside_untrusted_data_are_refused_by_name"),
    ],
    "a picture as output": [
        (BUILDERS, "test_a_picture_as_output"),
        ("../runs/budgets/test_reserve.py", "test_an_answer_that_is_too_large_is_paid_once_until_a_person_forks_the_run"),
    ],
    "thinking": [
        (BUILDERS, "test_a_thinking_part_is_recorded_and_replayed"),
        ("../runs/budgets/test_reserve.py", "test_the_bound_of_a_request_that_thinks_leaves_room_for_its_answer"),
    ],
    "web search and other tools that a provider runs": [
        (DOOR, "test_a_search_of_the_provider_taints_the_calls_of_the_same_answer"),
    ],
    "tools of a provider in model settings (`openai_native_tools`, `extra_body`)": [
        (DOOR, "test_tools_of_a_provider_that_model_settings_bring_are_refused_by_name"),
    ],
    "deferred and external tools with `DeferredToolRequests`, then `deferred_tool_results=`": [
        (BUILDERS, "test_deferred_calls_are_answered_by_a_second_call"),
        (BUILDERS, "test_an_external_tool_without_deferred_requests_is_refused_at_once"),
        (DOOR, "test_an_outside_answer_to_an_external_call_is_fenced_and_taints_the_run"),
        (DOOR, "test_an_answer_of_a_second_call_may_be_declared_trusted"),
    ],
    "`requires_approval=True`, `toolset.approval_required(…)`, `raise ApprovalRequired` in a tool": [
        (DOOR, "test_a_tool_that_requires_approval_waits_for_it_in_a_clean_run_too"),
        (DOOR, "test_a_toolset_that_requires_approval_by_the_arguments_is_called_after_the_approval"),
        (DOOR, "test_a_tool_that_raises_approval_required_is_called_after_the_approval"),
    ],
    "`HandleDeferredToolCalls`": [
        (DOOR, "test_no_handler_of_deferred_calls_answers_for_a_person"),
        (DOOR, "test_a_handler_of_external_calls_may_answer_those"),
        (DOOR, "test_a_handlers_answer_to_an_external_call_is_a_step"),
        (DOOR, "test_a_dangerous_external_call_needs_approval_before_a_handler_carries_it_out"),
    ],
    "`event_stream_handler=`, `ProcessEventStream`": [(BUILDERS, "test_events_of_a_call_come_again_on_each_replay")],
    "`ModelFallback`, `SelectModel`": [
        (DOOR, "test_a_capability_that_chooses_the_model_is_refused_by_name"),
        ("llm/providers/test_provider.py", "test_the_fallback_models_of_the_settings_are_called_in_turn"),
        ("../runs/budgets/test_reserve.py", "test_a_model_that_may_have_charged_counts_beside_the_one_that_answers"),
    ],
    "`BatchModelRequests`": [(BUILDERS, "test_requests_in_a_batch_are_refused_by_name")],
    "a hook that puts in another model": [(DOOR, "test_a_hook_that_puts_in_another_model_is_refused_at_once")],
    "hooks, history processors, functions as instructions": [
        (BUILDERS, "test_hooks_and_history_processors_run_again_on_each_replay"),
        (BUILDERS, "test_instructions_that_are_functions_run_again_on_each_replay"),
    ],
    "`usage_limits`, `timeout=`": [
        (BUILDERS, "test_a_usage_limit_ends_the_run_at_once"),
        (BUILDERS, "test_a_timeout_ends_the_run_at_once"),
    ],
    "`ctx.enqueue` in a tool": [(BUILDERS, "test_a_tool_that_enqueues_a_message_is_refused_by_name")],
    "agents outside of runs, as in evals": [
        (DOOR, "test_an_agent_runs_by_itself_outside_of_runs"),
        (DOOR, "test_a_test_of_an_agent_sees_the_same"),
    ],
}  # fmt: skip


def rows() -> dict[str, str]:
    _, _, table = (ROOT / "docs/llm.md").read_text().partition("| of pydantic-ai | inside `run.llm` |\n|---|---|\n")
    return dict(re.findall(r"\| (.+?) \| (.+) \|\n", table.partition("\n\n")[0] + "\n"))


def test_each_row_of_the_docs_table_has_a_test_and_no_row_breaks() -> None:
    assert list(rows()) == list(HELD_BY)
    assert not [row for row, text in rows().items() if "break" in text]


@pytest.mark.parametrize("row", HELD_BY)
def test_the_tests_of_a_row_exist(row: str) -> None:
    for file, name in HELD_BY[row]:
        assert f"def {name}(" in (ROOT / "tests/agents" / file).read_text()
