"""The LLM agent behind `github_issue_triage`, for issues about which the rules say nothing."""

from typing import Literal

from pydantic import BaseModel, Field
from pydantic_ai import Agent

Label = Literal["security", "data-loss", "crash", "bug", "performance", "feature", "docs", "question"]


class Verdict(BaseModel):
    labels: list[Label] = Field(
        min_length=1, max_length=3, description="the labels that fit, the most important one first"
    )
    priority: Literal["urgent", "high", "normal", "low"]


triager = Agent(
    name="issue-triager",
    output_type=Verdict,
    instructions=(
        "You triage issues of a software project. Choose labels and a priority for the issue in the data block. Urgent is "
        "only a leak of secrets, a hole in security, or the loss of data. If you are not sure, choose the lower priority."
    ),
)
