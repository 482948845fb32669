"""The door: every call of a tool, and of an output function, passes it before it is made.

- `door`: the order in which a call passes. `leaves` refuses a call that comes around it.
- `danger`: whether a call is dangerous in a tainted run.
- `approvals`: a person decides on the arguments of a call, as `shown_arguments` shows them. `approved_output` compares the output of
  an agent with the one that was approved.
- `tool_steps`: the call is a step of the journal; plain functions run in the `main_thread`.
"""
