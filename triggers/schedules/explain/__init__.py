"""Explain why a schedule fired or did not. `why` tries `fire_reasons`, then `skip_reasons`; both read `trail` and
`evidence`. `verdicts` has the types of question and answer; `missed_fires` lists recently missed times.
"""
