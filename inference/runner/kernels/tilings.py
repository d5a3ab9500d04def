"""How the products of few rows are cut among programs; see tests/bench/tune_linear.py."""

from __future__ import annotations

from dataclasses import dataclass, replace

# Of the 227 KB of shared memory that a Hopper program may have, what weights on their way may take.
_STAGE_BYTES = 160 << 10
# Every program of a narrow tiling reads all inputs of all rows; with more of them that takes longer than it saves. And
# with more outputs, tiles of 64 are enough to keep the memory busy.
_NARROW_OUTPUTS, _NARROW_INPUTS, _NARROW_WEIGHTS = 2048, 4096, 4 << 20


@dataclass(frozen=True, slots=True)
class Tiling:
    """block_n outputs by block_k inputs a tile; split_k programs share an output tile, the last to arrive adds up.

    groups: above 1, the kernel is that of kernels.narrow_linear, and so many warps share a tile's inputs.
    """

    block_n: int
    block_k: int
    split_k: int
    num_warps: int = 4
    num_stages: int = 4
    groups: int = 1


def choose_tiling(num_outputs: int, num_inputs: int, head_dim: int = 0, *, may_be_narrow: bool = False) -> Tiling:
    """Enough programs to keep every multiprocessor's loads in flight.

    head_dim: each tile must be one head. may_be_narrow: weights are 16 bits wide, and the product is all there is but
    for what is added.
    """
    is_short = num_outputs <= _NARROW_OUTPUTS and num_inputs <= _NARROW_INPUTS and num_inputs % 512 == 0
    if may_be_narrow and is_short and num_outputs * num_inputs <= _NARROW_WEIGHTS:
        return Tiling(8 if num_outputs <= 1024 else 16, 128, 1, num_stages=4, groups=4)
    if head_dim:
        return Tiling(head_dim, 128 if head_dim <= 128 else 64, 2 if num_inputs % 256 == 0 else 1, num_stages=5)
    if num_outputs >= 12_000:
        return Tiling(64, 128, 1, num_stages=3)
    if num_outputs >= 3_000 and num_inputs % 512 == 0:
        return Tiling(64, 256, 2 if num_outputs < 4_000 else 1, num_stages=5)
    return Tiling(64, 128, 4 if num_inputs % 512 == 0 else 1, num_stages=5)


def fitting(tiling: Tiling, element_size: int) -> Tiling:
    """As many stages of it as shared memory holds: all of them where weights are 16 bits wide."""
    stages = _STAGE_BYTES // (tiling.block_n * tiling.block_k * element_size)
    return replace(tiling, num_stages=max(1, min(tiling.num_stages, stages)))
