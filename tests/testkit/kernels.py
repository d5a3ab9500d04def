"""Where tests of kernels run: on CUDA, or with TRITON_INTERPRET=1 on the CPU, slowly, in Triton's interpreter."""

from __future__ import annotations

import os

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
DTYPE = torch.float16 if INTERPRETED else torch.bfloat16  # the interpreter knows no bfloat16
RUNS_KERNELS = [
    pytest.mark.gpu,
    pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def assert_close(got: torch.Tensor, expected: torch.Tensor, relative: float = 0.02) -> None:
    got, expected = got.float(), expected.float()
    assert torch.isfinite(got).all()
    assert (got - expected).norm() <= relative * expected.norm() + 1e-5


def fresh(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(*shape, device=DEVICE) * scale).to(DTYPE)


def rotated(heads: torch.Tensor, norm: torch.Tensor | None, cos_sin: torch.Tensor) -> torch.Tensor:
    """heads [..., head_dim], in pairs, normed and rotated by one position's cosines and sines, in float32."""
    heads = heads.float()
    if norm is not None:
        heads = heads * torch.rsqrt(heads.pow(2).mean(-1, keepdim=True) + 1e-6) * norm.float()
    cos, sin = cos_sin.chunk(2)
    first, second = heads[..., 0::2], heads[..., 1::2]
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)
