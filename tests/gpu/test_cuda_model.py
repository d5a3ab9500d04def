"""A model of our kernels gives Transformers' logits: packed prefills, decode rows, few and many, padded heads.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, in Triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton")

from inference.runner.cuda_model import DeviceModel  # noqa: E402
from inference.runner.model_parts import ModelParts, model_parts  # noqa: E402
from inference.runner.rotary import settle_rotary  # noqa: E402
from tests.testkit.device_rows import (  # noqa: E402
    MAX_LEN,
    DeviceRows,
    random_prompts,
    tiny_model_for_pages,
    transformers_logits,
)
from tests.testkit.kernels import RUNS_KERNELS  # noqa: E402
from tests.testkit.tiny_models import FUSED_ON_CUDA  # noqa: E402

pytestmark = RUNS_KERNELS
# What no family of its own shows: biases under a residual multiplier, norms of heads that are padded, positions in no
# layer at all, a head that shares the weights of scaled embeddings.
MIXED = {
    "granite_with_biases": ("granite", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "qwen3_with_narrow_heads": ("qwen3", {"head_dim": 12}),
    "gemma3_tied_with_narrow_heads": ("gemma3", {"head_dim": 12, "tie_word_embeddings": True}),
    "olmo2_with_one_key_head": ("olmo2", {"num_key_value_heads": 1}),
    "smollm3_without_rotary": ("smollm3", {"no_rope_layers": [0, 0, 0]}),
}


@torch.inference_mode()
@pytest.mark.parametrize("name", [*FUSED_ON_CUDA, "phi3_longrope", *MIXED])
def test_a_fused_model_gives_transformers_logits(name):
    name, changes = MIXED.get(name, (name, {}))
    prompts, model = random_prompts(), tiny_model_for_pages(name, **changes)
    parts, rows = model_parts(model), DeviceRows(model.config, prompts)
    assert isinstance(parts, ModelParts), parts
    settle_rotary(model, MAX_LEN)
    rows.check(DeviceModel(model, parts, rows.pool, MAX_LEN), transformers_logits(name, prompts, **changes))
