"""Rows of tokens over scattered blocks, and the passes of a StepModel over them, without a runner's streams and graphs.

With TRITON_INTERPRET=1 all of it is on the CPU, in Triton's interpreter.
"""

from __future__ import annotations

from itertools import accumulate

import torch
import triton

from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.cuda_model import PackedTokens
from inference.runner.kernels.attention import PagedAttention, tiles_of
from inference.runner.kernels.chunks import ChunkAttention, Chunks
from inference.runner.kernels.linear import MAX_ROWS
from inference.runner.kernels.rows import DECODES_ONE, gather_rows
from inference.runner.probe import probe
from inference.runner.rotary import settle_rotary
from inference.runner.step_model import StepModel
from tests.testkit.kernels import DEVICE
from tests.testkit.tiny_models import VOCAB, tiny_model

BLOCK = 16
MAX_LEN = 128
LENGTHS = (71, 6, 34)
_LONG, _SHORT, _MIDDLE = range(3)
# What decodes together: a few rows, and more than the products for few rows take.
_BATCHES = ([_MIDDLE, _LONG, _SHORT], [_SHORT] * (MAX_ROWS - 1) + [_MIDDLE, _SHORT])


def tiny_model_for_pages(name: str, **changes):
    """Probed, as the loader has a model when it looks for its parts."""
    model = tiny_model(name, **changes).to(DEVICE)
    probe(model, model.config.num_hidden_layers, 512)
    return model


def random_prompts() -> list[list[int]]:
    return [torch.randint(3, VOCAB, (length,)).tolist() for length in LENGTHS]


def transformers_logits(name: str, prompts: list[list[int]], **changes) -> list[torch.Tensor]:
    """Of each token of each prompt, by the definition's own attention."""
    model = tiny_model(name, **changes).to(DEVICE)
    model.set_attn_implementation("eager")
    settle_rotary(model, MAX_LEN)
    return [model(torch.tensor([prompt], device=DEVICE)).logits[0] for prompt in prompts]


class DeviceRows:
    """The prompts' tokens, all of them there already; how many of them the cache holds is for each pass to say.

    config: a Transformers model's, which tells what the pool must hold.
    """

    def __init__(self, config, prompts: list[list[int]]) -> None:
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        num_kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        padded = max(16, triton.next_power_of_2(head_dim))
        layout = KVLayout(config.num_hidden_layers, num_kv_heads, padded, BLOCK, torch.float32)
        blocks_per_row = MAX_LEN // BLOCK
        self.pool = KVPool(layout, len(prompts) * blocks_per_row, torch.device(DEVICE))
        for cache in (*self.pool.keys, *self.pool.values):
            cache[..., :head_dim] = float("nan")  # what pads a head is 0 from the start
        order = torch.randperm(self.pool.num_blocks, dtype=torch.int32)
        self.table = order.view(len(prompts), blocks_per_row).to(DEVICE)
        self._prompts = prompts
        self._token_ids = torch.zeros(len(prompts), MAX_LEN, dtype=torch.int32, device=DEVICE)
        for row, prompt in enumerate(prompts):
            self._token_ids[row, : len(prompt)] = torch.tensor(prompt)

    def attention(self, model: StepModel, prefills: ChunkAttention | None = None) -> PagedAttention:
        return PagedAttention(
            model.shape, self.table, BLOCK, max_model_len=MAX_LEN, max_batch=64, element_size=4, prefills=prefills
        )

    def prefill(self, model: StepModel, paged: PagedAttention, chunks: list[tuple[int, int, int]]) -> torch.Tensor:
        """chunks: (row, start, end) of its tokens; returns the logits of each chunk's last."""
        at = [(row, position) for row, start, end in chunks for position in range(start, end)]
        rows, positions = torch.tensor(at, device=DEVICE).T
        slots = self.table[rows, positions // BLOCK] * BLOCK + positions % BLOCK
        tiles = tiles_of([(row, start, end - start) for row, start, end in chunks])
        ends = torch.tensor([end - start for _, start, end in chunks], device=DEVICE).cumsum(0) - 1
        packed = PackedTokens(
            self._token_ids[rows, positions], slots.int(), positions.int(),
            torch.tensor(tiles, dtype=torch.int32, device=DEVICE), ends,
            self._chunks(chunks) if paged.wants_chunks else None,
        )  # fmt: skip
        return model.prefill(packed, paged)

    def _chunks(self, chunks: list[tuple[int, int, int]]) -> Chunks:
        lists = ([0, *accumulate(end - start for _, start, end in chunks)], [end for *_, end in chunks])
        ends, num_keys = (torch.tensor(values, dtype=torch.int32, device=DEVICE) for values in lists)
        return Chunks(ends, num_keys, self.table[[row for row, *_ in chunks]])

    def decode_last(self, model: StepModel, paged: PagedAttention, row_ids: list[int]) -> torch.Tensor:
        """The logits of these rows' last tokens, when the cache holds those before."""
        rows = torch.tensor(row_ids, dtype=torch.int32, device=DEVICE)
        lengths = torch.tensor([len(prompt) - 1 for prompt in self._prompts], dtype=torch.int32, device=DEVICE)
        scratch = model.scratch(len(row_ids) + 1, self.table)
        gather_rows(
            rows, torch.full_like(rows, DECODES_ONE), self._token_ids, lengths, self.table, BLOCK, model.cos_sin,
            model.embedding, scratch.inputs.first(len(row_ids)),
        )  # fmt: skip
        logits = model.decode(scratch, len(row_ids), paged)
        assert logits.data_ptr() == scratch.logits.data_ptr(), "logits are where a replayed graph leaves them"
        return logits

    def check(
        self, model: StepModel, expected: list[torch.Tensor], prefills: ChunkAttention | None = None
    ) -> None:
        """Each prompt's tokens but the last are prefilled in two packs, and the last is decoded in batches."""
        paged = self.attention(model, prefills)
        cuts = [(row, (len(prompt) - 1) // 2, len(prompt) - 1) for row, prompt in enumerate(self._prompts)]
        for chunks in ([(row, 0, cut) for row, cut, _ in cuts], cuts[::-1]):
            for logits, (row, _, end) in zip(self.prefill(model, paged, chunks), chunks, strict=True):
                torch.testing.assert_close(logits, expected[row][end - 1], rtol=1e-3, atol=1e-3)
        for row_ids in _BATCHES:
            for logits, row in zip(self.decode_last(model, paged, row_ids), row_ids, strict=True):
                torch.testing.assert_close(logits, expected[row][-1], rtol=1e-3, atol=1e-3)
