"""Why did it fire, or not? `why` asks `fire_reasons`, then `skip_reasons`; `trail` and `evidence` are what they answer from.

`verdicts` are the question and the answer; `missed_fires` is what schedules missed lately.
"""
