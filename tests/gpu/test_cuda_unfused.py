"""A Transformers model over the paged kernels gives Transformers' logits: packed prefills, decode rows, padded heads.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, in Triton's interpreter.
"""

from __future__ import annotations

import os

import pytest
import torch
from transformers import AutoModelForCausalLM

triton = pytest.importorskip("triton")

from inference.paged_kv.pool import KVLayout, KVPool  # noqa: E402
from inference.runner.cuda_model import PackedTokens  # noqa: E402
from inference.runner.cuda_unfused import UnfusedModel  # noqa: E402
from inference.runner.kernels.attention import PagedAttention, tiles_of  # noqa: E402
from inference.runner.probe import probe  # noqa: E402
from tests.testkit.tiny_models import VOCAB, save_tiny_model  # noqa: E402

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cpu" if INTERPRETED else "cuda"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a CUDA device"),
]
BLOCK = 16
MAX_LEN = 128
LENGTHS = (70, 5, 33)  # tokens of each row before its last, which is decoded
FAMILIES = ("phi3", "phi3_partial_rotary", "gemma2", "gemma3", "granite", "olmo2", "smollm3", "stablelm", "cohere2")


def _pool_and_table(config):
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    num_kv_heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    padded = max(16, triton.next_power_of_2(head_dim))
    layout = KVLayout(config.num_hidden_layers, num_kv_heads, padded, BLOCK, torch.float32)
    blocks_per_row = MAX_LEN // BLOCK
    pool = KVPool(layout, len(LENGTHS) * blocks_per_row, torch.device(DEVICE))
    order = torch.randperm(pool.num_blocks, dtype=torch.int32)
    return pool, order.view(len(LENGTHS), blocks_per_row).to(DEVICE)


def _packed(chunks, table, part_keys):
    """chunks: (row, start, tokens)."""
    rows = torch.tensor([row for row, _, tokens in chunks for _ in tokens], device=DEVICE)
    positions = torch.tensor([start + i for _, start, tokens in chunks for i in range(len(tokens))], device=DEVICE)
    slots = table[rows, positions // BLOCK] * BLOCK + positions % BLOCK
    token_ids = torch.tensor([token for *_, tokens in chunks for token in tokens], dtype=torch.int32, device=DEVICE)
    tiles = torch.tensor(tiles_of([(row, start, len(tokens)) for row, start, tokens in chunks], part_keys))
    ends = torch.tensor([len(tokens) for *_, tokens in chunks]).cumsum(0) - 1
    return PackedTokens(token_ids, slots.int(), positions.int(), tiles.int().to(DEVICE), ends.to(DEVICE))


@torch.inference_mode()
@pytest.mark.parametrize("name", FAMILIES)
def test_packed_prefills_and_decode_rows_give_transformers_logits(name, tmp_path):
    folder = save_tiny_model(name, tmp_path / name)
    reference = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    reference = reference.to(DEVICE)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(DEVICE)
    probe(model, model.config.num_hidden_layers, 512)  # sets it to run through the pages
    prompts = [torch.randint(3, VOCAB, (length + 1,)).tolist() for length in LENGTHS]
    expected = [reference(torch.tensor([prompt], device=DEVICE)).logits[0] for prompt in prompts]

    pool, table = _pool_and_table(model.config)
    unfused = UnfusedModel(model, pool, model.config.num_attention_heads, MAX_LEN)
    paged = PagedAttention(unfused.shape, table, BLOCK, max_model_len=MAX_LEN, max_batch=4)
    first = [(row, 0, prompt[: length // 2]) for row, (prompt, length) in enumerate(zip(prompts, LENGTHS, strict=True))]
    rest = [(row, len(tokens), prompts[row][len(tokens) : -1]) for row, _, tokens in first]
    for chunks in (first, rest[::-1]):
        got = unfused.prefill(_packed(chunks, table, paged.part_keys), paged)
        for logits, (row, start, tokens) in zip(got, chunks, strict=True):
            torch.testing.assert_close(logits, expected[row][start + len(tokens) - 1], rtol=1e-3, atol=1e-3)

    scratch = unfused.scratch(4, table)
    rows, inputs = torch.tensor([2, 0, 1], device=DEVICE), scratch.inputs.first(3)
    last = torch.tensor([prompt[-1] for prompt in prompts], device=DEVICE)[rows]
    at = torch.tensor(LENGTHS, device=DEVICE)[rows]
    inputs.hidden.copy_(unfused.embedding[last])
    inputs.positions.copy_(at)
    inputs.slots.copy_(table[rows, at // BLOCK] * BLOCK + at % BLOCK)
    inputs.tables.copy_(table[rows])
    decoded = unfused.decode(scratch, 3, paged)
    assert decoded.data_ptr() == scratch.logits.data_ptr(), "logits are where a replayed graph leaves them"
    for logits, row in zip(decoded, rows.tolist(), strict=True):
        torch.testing.assert_close(logits, expected[row][-1], rtol=1e-3, atol=1e-3)
