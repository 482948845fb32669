"""From a notification to people: who gets it, when, and what became of it.

- `policy`: a recipient's rules, the time and what it got before → send, hold, merge or suppress. Pure.
- `plan`: each new notification becomes deliveries, once; `lock` lets one transaction at a time decide.
- `deliver`: sends what is due, outside of any transaction, and records what became of it; `network.breakers` leaves hosts
  alone that are away.
- `channels`: one file for each way out. `message` is what they send.
- `alarms`: conditions that hold, reported when they begin and when they end.
- `recipients`: addresses and rules as rows say them; `edit`: what operators do to recipients and groups.
- `resolve`: what people say about deliveries; `inbox`: the messages that a user of the console reads there.
  `waiting_deliveries`: deliveries that are called off or put off.

Exactly one outcome is never guessed: a message that was handed over without an answer is *unknown*, and is sent again only
by a channel whose receiver can tell a repeat, or by a person.
"""
