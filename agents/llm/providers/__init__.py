"""The models that serve an agent, and those who provide them.

- `models`: the model of an agent, by its own choice or by WAKEFUL_MODEL. `builtin` is the model of the demo, `stand_in` that of tests.
- `serving`: the models behind a model. `certificates`: what their clients trust, read once by a process.
- `failures`: which errors of a provider are transient, and when to retry.
- `hidden_tools`: tools of a provider that settings of a model would bring.
"""
