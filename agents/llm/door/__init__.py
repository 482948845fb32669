"""The door: every call of a tool, and of an output function, passes it before it is made.

- `door`: the order in which a call passes. `external`: calls that handlers carry out. `leaves` refuses a call that comes around it.
- `rules`: which tools a call may use, and which calls need approval. `danger`: what is dangerous in a tainted run, beside the
  `trusted_texts`.
- `approvals`: a person decides on the arguments of a call, as `shown_arguments` shows them. `approved_output` compares the output of
  an agent with the one that was approved.
- `tool_steps`: the call is a step of the journal; plain functions run in the `main_thread`.
"""
