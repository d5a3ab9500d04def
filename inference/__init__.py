"""Tokens in, tokens out: scheduling, paged KV and the model runner. Knows nothing of wire formats or HTTP."""
