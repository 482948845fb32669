"""Tools for LLM agents that ship with Wakeful: `http` fetches from hosts that you allow."""
