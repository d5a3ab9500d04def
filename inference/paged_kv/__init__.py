"""Blocks, block tables and the prefix index. Knows nothing of text, models or devices (torch in pool.py only)."""
