"""CEL, the language of filters, keys and inputs. In reading order:

- `tokens`, `clauses`: the structure of an expression, without a parser; `faults`: where it is wrong, and the fix
- `cel`: limits, analysis and evaluation; `evaluator` runs it in a helper process, which is `evaluator_process`
- `message_patterns`: write the filter of a trigger for messages
"""
