"""Why did it fire, or not? `why` asks `fired`, then `not_fired`; `trail` and `evidence` are what they answer from.

`verdicts` are the question and the answer; `missed` is what schedules missed lately.
"""
