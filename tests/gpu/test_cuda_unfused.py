"""A Transformers model over the paged kernels gives Transformers' logits: packed prefills, decode rows, padded heads.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, in Triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton")

from inference.runner.cuda_unfused import UnfusedModel  # noqa: E402
from tests.testkit.device_rows import (  # noqa: E402
    MAX_LEN,
    DeviceRows,
    random_prompts,
    tiny_model_for_pages,
    transformers_logits,
)
from tests.testkit.kernels import RUNS_KERNELS  # noqa: E402

pytestmark = RUNS_KERNELS
FAMILIES = ("phi3", "phi3_partial_rotary", "gemma2", "gemma3", "granite", "olmo2", "smollm3", "stablelm", "cohere2")


@torch.inference_mode()
@pytest.mark.parametrize("name", FAMILIES)
def test_an_unfused_model_gives_transformers_logits(name):
    prompts, model = random_prompts(), tiny_model_for_pages(name)
    rows = DeviceRows(model.config, prompts)
    unfused = UnfusedModel(model, rows.pool, model.config.num_attention_heads, MAX_LEN)
    rows.check(unfused, transformers_logits(name, prompts))


@torch.inference_mode()
def test_a_decode_for_which_nothing_has_been_gathered_embeds_valid_tokens(monkeypatch):
    """As passes do that are run to see what there is to compile."""
    prompts, model = random_prompts(), tiny_model_for_pages("phi3")
    rows = DeviceRows(model.config, prompts)
    unfused = UnfusedModel(model, rows.pool, model.config.num_attention_heads, MAX_LEN)
    new_empty = torch.Tensor.new_empty
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda *args, **options: new_empty(*args, **options).fill_(1e9))
    scratch = unfused.scratch(2, rows.table)
    logits = unfused.decode(scratch, 2, rows.attention(unfused))
    assert logits.shape == (2, unfused.num_outputs)
