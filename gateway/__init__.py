"""The gateway: connections, keys, quotas, metrics and wire protocols. Knows nothing of tensors.

Its process never imports torch or transformers: start-up stays fast, and the engine is a process of its own.
"""

__version__ = "0.1.0"
