"""Values and rules that the other folders of `agents` stand on. None of them knows a run.

`durations`, `instants`, `ids`: times and ids as text; `backoff`: pauses between tries; `effects`: what a run leaves behind;
`event_names`, `reserved_types`: which types an event may have; `redaction`: no secret is stored or shown; `tool_cap`: which tools a
run may use; `installation`: facts that agents may ask.
"""
