"""Why did it fire, or not? `why` answers by `fired` and `not_fired`, from this evidence: `trail` (events), `edits`, `outages`.

`verdicts` are the question and the answer; `missed` is what schedules missed lately.
"""
