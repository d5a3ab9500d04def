"""The order and width that a head's dimensions have in our layers, whatever they have in the model's.

First those that are rotated, in pairs: what a rotation mixes lies side by side. Then those that are not, as they were.
Then zeros, where the cache is wider. Scores do not change by any of it, as long as queries and keys both have it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from inference.runner.layer_parts import Affine, Norm, stack


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """head_dim: the model's; width: the cache's, at least head_dim; num_rotated: a head's leading dimensions that are
    rotated, dimension i of their first half with dimension i of their second; adjacent: each with its neighbour."""

    head_dim: int
    width: int
    num_rotated: int
    adjacent: bool = False

    def qkv(self, query: Affine, key: Affine, value: Affine) -> Affine:
        """One projection to heads of this layout. Values keep their order: nothing rotates them."""
        order = self._order()
        return stack([self._heads(query, order), self._heads(key, order), self._heads(value, None)])

    def out(self, affine: Affine) -> Affine:
        """The projection of attended heads, as wide as the values."""
        weight, bias = affine
        if self.width == self.head_dim:
            return affine
        return self._widened(weight.t().unflatten(0, (-1, self.head_dim))).t().contiguous(), bias

    def norm(self, norm: Norm | None) -> Norm | None:
        """Over one head, or all of a token. It makes up for the zeros that are among what its mean is taken of."""
        if norm is None:
            return None
        weight = norm.weight.view(-1, self.head_dim)[:, self._order()]
        if self.width == self.head_dim:
            return Norm(weight.flatten(), norm.eps)
        share = self.head_dim / self.width
        return Norm(self._widened(weight.float() * share**0.5), norm.eps * share)

    def _heads(self, affine: Affine, order: torch.Tensor | None) -> Affine:
        """A projection whose heads have their dimensions in that order, or their own."""

        def heads(rows: torch.Tensor) -> torch.Tensor:
            by_head = rows.unflatten(0, (-1, self.head_dim))
            return self._widened(by_head if order is None else by_head[:, order])

        weight, bias = affine
        return heads(weight), None if bias is None else heads(bias)

    def _order(self) -> torch.Tensor:
        if self.adjacent:
            return torch.arange(self.head_dim)
        half = self.num_rotated // 2
        pairs = torch.stack([torch.arange(half), torch.arange(half) + half], dim=1).flatten()
        return torch.cat([pairs, torch.arange(self.num_rotated, self.head_dim)])

    def _widened(self, heads: torch.Tensor) -> torch.Tensor:
        """[heads, head_dim, ...] to [heads * width, ...]."""
        if self.width > self.head_dim:
            heads = F.pad(heads, (0, 0) * (heads.dim() - 2) + (0, self.width - self.head_dim))
        return heads.flatten(0, 1)
