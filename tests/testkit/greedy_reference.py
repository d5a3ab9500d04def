"""What Transformers itself ranks first, for tests that compare tokens."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM


@torch.inference_mode()
def greedy_after(
    folder: Path, prompts: dict[str, list[int]], outputs: dict[str, list[int]], device: str = "cpu"
) -> dict[str, list[int]]:
    """The first-ranked token after each prefix of prompt + output, without a cache, in float32: the output itself, if
    that is greedy.

    One pass for all: padding comes last, where causal attention does not look.
    """
    # Eager attention: the others know no soft cap, and some versions of Transformers choose them all the same.
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").to(device)
    sequences = {turn_id: prompt + outputs[turn_id] for turn_id, prompt in prompts.items()}
    longest = max(map(len, sequences.values()))
    ids = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in sequences.values()], device=device)
    best = model(input_ids=ids, use_cache=False).logits.argmax(-1)
    return {
        turn_id: best[index, len(prompts[turn_id]) - 1 : len(tokens) - 1].tolist()
        for index, (turn_id, tokens) in enumerate(sequences.items())
    }
