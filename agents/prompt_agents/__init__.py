"""Agents that people make without code: instructions, tools, and what becomes of the answer.

`definition` is what a version of one says, `body` executes it, `catalog` knows those of the database and gives them to the
registry. They are made and edited by `triggers.prompt_agents`.
"""
