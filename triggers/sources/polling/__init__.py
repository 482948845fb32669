"""Kinds of sources that Wakeful polls, where the other side does not push: `feed`, `json_list`, `mailbox`.

`poller` decides when the next poll is due, `novelty` which items of a list are new; `conditional_get` fetches a list.
"""
