"""What other frameworks share in durable runs: each of their requests to a model is a step of the run's journal.

- `requests`: such a step, under the budgets and the taint of the run. `costs`: what a request may cost, and did cost. `failures`: what
  follows when it fails.
- `tools`: the tool cap of the run. `clients`: clients of providers, whose own retries are off. `body`: an event loop and threads, from the
  plain function of a body.
"""
