"""Heads in our layouts score, attend and are normed as in the model's own."""

import pytest
import torch
import torch.nn.functional as F

from inference.runner.head_layout import HeadLayout
from inference.runner.layer_parts import Norm

HEADS, KV_HEADS, TOKENS, INPUTS = 4, 2, 5, 6
SIZES = ((12, 12, 12), (12, 12, 8), (12, 12, 0), (12, 16, 8), (6, 16, 6))
LAYOUTS = [HeadLayout(*sizes, adjacent) for sizes in SIZES for adjacent in (False, True)]


def _random(shape):
    return torch.randn(shape, dtype=torch.float64)


def _normed(heads, norm):
    if norm is None:
        return heads
    return heads * torch.rsqrt(heads.square().mean(-1, keepdim=True) + norm.eps) * norm.weight


def _rotated(heads, angles, adjacent):
    """As models do it, each of the two kinds."""
    num_rotated = 2 * angles.shape[-1]
    if adjacent:
        return torch.cat([_rotated_by_pairs(heads[..., :num_rotated], angles), heads[..., num_rotated:]], dim=-1)
    half = angles.shape[-1]
    first, second, rest = heads[..., :half], heads[..., half : 2 * half], heads[..., 2 * half :]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def _rotated_by_pairs(heads, angles):
    pairs = heads.unflatten(-1, (-1, 2))
    angles = F.pad(angles, (0, pairs.shape[-2] - angles.shape[-1]))[:, None]
    first, second = pairs.unbind(-1)
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([first * cos - second * sin, second * cos + first * sin], dim=-1).flatten(-2)


def _attended(query, key, value):
    scores = torch.einsum("qhd,khd->hqk", query, key.repeat_interleave(HEADS // KV_HEADS, 1))
    return torch.einsum("hqk,khd->qhd", scores.softmax(-1), value.repeat_interleave(HEADS // KV_HEADS, 1)).flatten(1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("has_norm", [True, False])
@pytest.mark.parametrize("biased", [(), (0,), (0, 1, 2, 3)])
def test_what_attention_gives_is_what_the_model_gives(layout, has_norm, biased):
    shapes = [(HEADS * layout.head_dim, INPUTS), *[(KV_HEADS * layout.head_dim, INPUTS)] * 2]
    shapes.append((INPUTS, HEADS * layout.head_dim))
    query, key, value, out = affines = [
        (_random(shape), _random(shape[:1]) if index in biased else None) for index, shape in enumerate(shapes)
    ]
    norms = [Norm(torch.rand(layout.head_dim) + 0.5, 1e-2) if has_norm else None for _ in range(2)]
    x, angles = _random((TOKENS, INPUTS)), torch.rand(TOKENS, layout.num_rotated // 2) * 6

    heads = [F.linear(x, *affine).unflatten(-1, (-1, layout.head_dim)) for affine in affines[:3]]
    turned = [
        _rotated(_normed(part, norm), angles, layout.adjacent) for part, norm in zip(heads[:2], norms, strict=True)
    ]
    expected = F.linear(_attended(*turned, heads[2]), *out)

    qkv = F.linear(x, *layout.qkv(query, key, value)).unflatten(-1, (-1, layout.width))
    ours = qkv.split([HEADS, KV_HEADS, KV_HEADS], dim=1)
    turned = [
        _rotated_by_pairs(_normed(part, layout.norm(norm)), angles) for part, norm in zip(ours[:2], norms, strict=True)
    ]
    torch.testing.assert_close(F.linear(_attended(*turned, ours[2]), *layout.out(out)), expected, rtol=1e-4, atol=1e-4)


def test_a_rotation_finds_what_it_mixes_side_by_side_and_the_rest_as_it_was():
    numbered = torch.arange(12)[:, None]
    weight, _ = HeadLayout(6, 8, 4).qkv((numbered, None), (numbered[:6], None), (numbered[6:], None))
    zeros = [0, 0]
    assert weight.flatten().tolist() == [
        *[0, 2, 1, 3, 4, 5], *zeros, *[6, 8, 7, 9, 10, 11], *zeros, *[0, 2, 1, 3, 4, 5], *zeros,
        *[6, 7, 8, 9, 10, 11], *zeros,
    ]  # fmt: skip


def test_a_norm_over_all_heads_of_a_token_is_reordered_head_by_head():
    norm = HeadLayout(4, 4, 4).norm(Norm(torch.arange(8), 1e-6))
    assert norm.weight.tolist() == [0, 2, 1, 3, 4, 6, 5, 7]
