"""Why did it fire, or not? `why` answers from `fired`, `not_fired`, `missed`, `outages`, `periods` and the `trail` of edits; `verdicts`
are the questions and answers.
"""
