"""Attention over the paged cache, split-KV decode and varlen prefill: how the kernels are cut and launched.

New tokens are in the cache already (kernels.heads).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from inference.runner.kernels.chunks import ChunkAttention, Chunks
from inference.runner.kernels.decode_attention import decode_kernel
from inference.runner.kernels.heads import HeadShape, LayerAttention
from inference.runner.kernels.overlap import NO_OVERLAP, Overlap
from inference.runner.kernels.prefill_attention import prefill_kernel
from inference.runner.kernels.rows import LONGEST_RUN

_LOG2E = 1.4426950408889634
# Splits of a row that sees much: what gives each program of one row one, within these.
_LEAST_SPLITS, _MOST_SPLITS = 48, 256
_CHUNK = 8
_NO_WINDOW = 1 << 30
TILE_QUERIES = 64
# A short chunk's keys are cut too, for want of tiles: so many to a part at least, and in so many parts at most. So many
# programs more a head than tiles at most.
_SHORT_CHUNK = 256
_LEAST_PART_KEYS, _MOST_PARTS = 512, 32
EXTRA_TILES = 64
# Of the 227 KB of shared memory a Hopper program may have, what tiles on their way may take.
_STAGE_BYTES = 150 << 10


@dataclass(frozen=True, slots=True)
class DecodeTiling:
    """A split is a tile of tile_kv tokens, or more where a row sees many; see tests/bench/tune_attention.py.

    programs_per_sm: how many programs a multiprocessor is given at least, while there are splits enough. From
    chunk_programs rows and KV heads on, a program does whole chunks of splits, with chunk_stages.
    """

    tile_kv: int = 64
    num_warps: int = 2
    num_stages: int = 3
    programs_per_sm: int = 3
    chunk_programs: int = 256
    chunk_stages: int = 5


@dataclass(frozen=True, slots=True)
class PrefillTiling:
    """Tiles of TILE_QUERIES queries by tile_kv keys."""

    tile_kv: int = 64
    num_warps: int = 4
    num_stages: int = 3


class PagedAttention:
    """Launches the kernels; holds what all layers share. One stream only: layers take turns with the scratch.

    block_table: [max_rows, max_blocks] int32; max_model_len and max_batch bound what decode is asked; element_size:
    bytes of a cached value; prefills: what computes prefills in our kernel's place, where it takes the layer;
    most_splits: by default as many as keep a device busy with one row.
    """

    def __init__(
        self, shape: HeadShape, block_table: torch.Tensor, block_size: int, *, max_model_len: int, max_batch: int,
        element_size: int = 2, tiling: DecodeTiling | None = None, prefill_tiling: PrefillTiling | None = None,
        prefills: ChunkAttention | None = None, most_splits: int | None = None,
    ) -> None:  # fmt: skip
        self._prefills = prefills
        self._prefill_tiling = prefill_tiling or choose_prefill_tiling(shape.head_dim, element_size)
        self._tiling = tiling or choose_decode_tiling(shape.head_dim, element_size)
        self._shape, self._block_table, self._block_size = shape, block_table, block_size
        self._group = shape.num_heads // shape.num_kv_heads
        num_pairs, device = max_batch * shape.num_kv_heads, block_table.device
        self._num_sms = torch.cuda.get_device_properties(device).multi_processor_count if block_table.is_cuda else 1
        of_one_row = self._tiling.programs_per_sm * self._num_sms // shape.num_kv_heads
        self._most_splits = most_splits or min(max(of_one_row, _LEAST_SPLITS), _MOST_SPLITS)
        self._max_splits = min(self._most_splits + 1, triton.cdiv(max_model_len, self._tiling.tile_kv))
        num_parts = num_pairs * self._max_splits * self._group
        self._parts = torch.empty(num_parts * shape.head_dim, dtype=torch.float32, device=device)
        self._part_stats = torch.empty(num_parts * 2, dtype=torch.float32, device=device)
        self._arrivals = torch.zeros(num_pairs, dtype=torch.int32, device=device)
        num_tile_parts = 2 * EXTRA_TILES * shape.num_heads
        self._tile_parts = torch.empty(
            num_tile_parts * TILE_QUERIES * shape.head_dim, dtype=torch.float32, device=device
        )
        self._tile_stats = torch.empty(num_tile_parts * 2 * TILE_QUERIES, dtype=torch.float32, device=device)
        self._tile_arrivals = torch.zeros(num_tile_parts, dtype=torch.int32, device=device)

    @property
    def name(self) -> str:
        """What computes attention, once the layers have asked."""
        prefills = self._prefills
        return "triton" if prefills is None or not prefills.is_used else f"triton decode, {prefills.name} prefill"

    @property
    def wants_chunks(self) -> bool:
        return self._prefills is not None

    def decode(
        self, layer: LayerAttention, query: torch.Tensor, positions: torch.Tensor, tables: torch.Tensor,
        out: torch.Tensor, *, overlap: Overlap = NO_OVERLAP,
    ) -> None:  # fmt: skip
        """One new token a row, which the cache holds already; writes out, [B, heads * head_dim].

        query: [B, >= heads * head_dim], rotated, rows maybe apart; positions: [B] int32; tables: [B, max_blocks] int32,
        the rows' block tables. Grid (num_kv_heads, B, programs that share a row's splits).
        """
        shape, tiling, batch = self._shape, self._tiling, query.shape[0]
        wanted = triton.cdiv(tiling.programs_per_sm * self._num_sms, batch * shape.num_kv_heads)
        group = triton.next_power_of_2(self._group)
        by_chunk = batch * shape.num_kv_heads >= tiling.chunk_programs
        decode_kernel[(shape.num_kv_heads, batch, min(self._max_splits, wanted))](
            query, query.stride(0), layer.keys, layer.values, out, positions, tables, tables.stride(0), self._parts,
            self._part_stats, self._arrivals, layer.scale * _LOG2E, layer.window or _NO_WINDOW,
            NUM_HEADS=shape.num_heads, NUM_KV_HEADS=shape.num_kv_heads, DIM=shape.head_dim,
            BLOCK_SIZE=self._block_size, GROUP=self._group, GROUP_POW2=group, TILE_Q=max(16, group),
            TILE_KV=tiling.tile_kv, MOST_SPLITS=self._most_splits, MAX_SPLITS=self._max_splits, CHUNK=_CHUNK,
            BY_CHUNK=by_chunk, SOFT_CAP=layer.soft_cap * _LOG2E,
            STAGES=tiling.chunk_stages if by_chunk else tiling.num_stages, UNROLL=max(2, 16 // group),
            STARTS_EARLY=overlap.starts_early, LETS_NEXT_START=overlap.lets_next_start, MOST_NEW=LONGEST_RUN,
            launch_pdl=overlap.starts_early, num_warps=tiling.num_warps,
        )  # fmt: skip

    def attend_packed(
        self, layer: LayerAttention, qkv: torch.Tensor, tiles: torch.Tensor, chunks: Chunks | None
    ) -> torch.Tensor:
        """[T, heads * head_dim], causal attention of packed chunks whose queries and keys store_heads has dealt with.

        qkv: [T, qkv_width], of which queries are read; tiles: see `prefill`; chunks: the same chunks, where
        wants_chunks. What stands for tokens of no chunk is anything: nothing but the spare row's block keeps of it.
        """
        if self._prefills is not None and chunks is not None and self._prefills.takes(layer):
            return self._prefills(layer, qkv, chunks)
        out = qkv.new_empty(qkv.shape[0], self._shape.query_width)
        self.prefill(layer, qkv, tiles, out)
        return out

    def prefill(self, layer: LayerAttention, qkv: torch.Tensor, tiles: torch.Tensor, out: torch.Tensor) -> None:
        """Our kernel's attend_packed; writes out.

        tiles: [n, 8] int32, see tiles_of; those with no queries do nothing. Grid (num_heads, n).
        """
        shape, tiling = self._shape, self._prefill_tiling
        prefill_kernel[(shape.num_heads, tiles.shape[0])](
            qkv, layer.keys, layer.values, out, tiles, self._block_table, self._block_table.stride(0),
            self._tile_parts, self._tile_stats, self._tile_arrivals, layer.scale * _LOG2E,
            layer.window or _NO_WINDOW,
            NUM_HEADS=shape.num_heads, NUM_KV_HEADS=shape.num_kv_heads, DIM=shape.head_dim,
            BLOCK_SIZE=self._block_size, SOFT_CAP=layer.soft_cap * _LOG2E, HAS_WINDOW=layer.window is not None,
            TILE_Q=TILE_QUERIES, TILE_KV=tiling.tile_kv, STAGES=tiling.num_stages, num_warps=tiling.num_warps,
        )  # fmt: skip


def choose_decode_tiling(head_dim: int, element_size: int) -> DecodeTiling:
    """What was fastest on an H200 on the whole, at contexts of 400 and 1,900 tokens and 1 to 32 rows."""
    if head_dim * element_size <= 128:
        return DecodeTiling(64, num_warps=1, num_stages=2, programs_per_sm=6)
    tile, stages = _fitting(head_dim * element_size)
    return DecodeTiling(tile, num_warps=2 if head_dim <= 128 else 4, num_stages=stages, programs_per_sm=3)


def choose_prefill_tiling(head_dim: int, element_size: int) -> PrefillTiling:
    tile, stages = _fitting(head_dim * element_size)
    return PrefillTiling(tile, num_warps=4 if head_dim <= 128 else 8, num_stages=stages)


def _fitting(head_bytes: int) -> tuple[int, int]:
    """Keys a tile, and how many tiles of keys and values are on their way at once, within the shared memory."""
    tile = 64 if head_bytes <= 512 else 32
    return tile, max(1, min(3, _STAGE_BYTES // (2 * tile * head_bytes)))


Tile = tuple[int, int, int, int, int, int, int, int]


def tiles_of(spans: list[tuple[int, int, int]], least_part_keys: int = _LEAST_PART_KEYS) -> list[Tile]:
    """What the prefill programs of a head do for packed (row, start position, number of tokens) spans, in order.

    (row, first token, its position, number of queries, first key, end of keys, first part, part << 16 | parts): a
    short chunk far from its prompt's start is few tiles, so its keys are cut at multiples of a part's size, and several
    programs share them, while there is room. The cuts depend on the row alone.
    """
    tiles: list[Tile] = []
    first_token = num_extra = num_parts = 0
    for row, start, count in spans:
        for offset in range(0, count, TILE_QUERIES):
            queries = min(TILE_QUERIES, count - offset)
            num_keys = start + offset + queries
            part_keys = max(least_part_keys, triton.next_power_of_2(-(-num_keys // _MOST_PARTS)))
            cuts = -(-num_keys // part_keys) if count <= _SHORT_CHUNK else 1
            if num_extra + cuts - 1 > EXTRA_TILES:
                cuts = 1
            for cut in range(cuts):
                end = num_keys if cut == cuts - 1 else (cut + 1) * part_keys
                first_part = num_parts if cuts > 1 else 0
                begin = cut * part_keys
                tiles.append(
                    (row, first_token + offset, start + offset, queries, begin, end, first_part, cut << 16 | cuts)
                )
            if cuts > 1:
                num_extra += cuts - 1
                num_parts += cuts
        first_token += count
    return tiles
