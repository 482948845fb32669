"""Tools for LLM agents: `toolbox` knows them by name. Every other file has one tool, but `http`, which makes such that call hosts
that you allow."""
