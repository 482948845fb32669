"""LLM agents of a user's app: WAKEFUL_APPS=courier,scribe, and the model by settings alone (WAKEFUL_MODEL, OPENAI_BASE_URL)."""
