"""Triton kernels, each beside the function that launches it; tests/gpu holds them to plain references."""
