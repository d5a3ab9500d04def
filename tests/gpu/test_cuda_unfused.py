"""A Transformers model over the paged kernels gives Transformers' logits: packed prefills, decode rows, padded heads.

Runs on CUDA. With TRITON_INTERPRET=1 the same tests run on the CPU, in Triton's interpreter.
"""

from __future__ import annotations

import pytest
import torch

triton = pytest.importorskip("triton")

from inference.runner.cuda_unfused import UnfusedModel  # noqa: E402
from tests.testkit.device_rows import (  # noqa: E402
    INTERPRETED,
    MAX_LEN,
    DeviceRows,
    random_prompts,
    tiny_model_for_pages,
    transformers_logits,
)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not INTERPRETED and not torch.cuda.is_available(), reason="needs a CUDA device"),
]
FAMILIES = ("phi3", "phi3_partial_rotary", "gemma2", "gemma3", "granite", "olmo2", "smollm3", "stablelm", "cohere2")


@torch.inference_mode()
@pytest.mark.parametrize("name", FAMILIES)
def test_an_unfused_model_gives_transformers_logits(name):
    prompts, model = random_prompts(), tiny_model_for_pages(name)
    rows = DeviceRows(model.config, prompts)
    unfused = UnfusedModel(model, rows.pool, model.config.num_attention_heads, MAX_LEN)
    rows.check(unfused, transformers_logits(name, prompts))
