"""The process `manage.py sources`: reads the sources whose kinds are runners.

`loop` owns sources and records what their `reader_thread`s read, one each; `owners` decides who owns a source, `record` stores a
batch with its position, and `poison` keeps the messages that are no events.
"""
