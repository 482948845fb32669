"""Reports: the outcome of a run goes where its policy says (`agents.kernel.report`), once for each end.

- `end`: an end as the message of the outbox has it, and in words
- `deliver`: the handler of these messages, in the transaction that deletes them
- one file for each kind of destination, a function of the ends of a batch: `notices`; `events`, which also go to subscriptions; and
  `replies` to the messages that woke the runs

The message is written by the transaction that ends the run (`runs/migrations/0012_report_of_an_end.py`), or by the one that decides
that no run comes of a wake (`runs.transitions.reports`).
"""
