"""Which triggers an event matches, and with what key and input. In reading order:

- `pending`, `backfill_terms`: the events to match; `payload`: their data
- `index`: the triggers that may match an event; `flow_control`, `trigger_policy`: what a trigger declares for its matches
- `expressions`: the language of filters, keys and inputs
- `match`: match events against triggers; `matches`: what is left to admission; `slow_lane`: costly matching beside the
  dispatcher, in `lanes`
- `trial`, `recent`, `field_samples`: help people to write filters
"""
