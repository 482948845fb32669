"""Agents that people make without code: instructions, tools, and what becomes of the answer.

`definition` is the content of a version, `body` executes it, `catalog` reads them from the database and adds them to
the registry. They are made and edited by `triggers.prompt_agents`.
"""
