"""Tiny models as GGUF files, with a vocabulary of single bytes, a pair of them and names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
from tokenizers.pre_tokenizers import ByteLevel

_OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
_INSIDE = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def write_gguf(
    model: Any, path: Path, more: Callable[[gguf.GGUFWriter], None] = lambda _: None, without: str = ""
) -> Path:
    """A Qwen2, whose projections llama.cpp leaves in their order. more: adds keys and tensors; without: a tensor that
    is left out."""
    config = model.config
    writer = gguf.GGUFWriter(path, "qwen2")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    _add_vocabulary(writer, config.vocab_size)
    more(writer)
    for name, weight in model.state_dict().items():
        if name != without:
            writer.add_tensor(_gguf_name(name), weight.float().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_vocabulary(writer: gguf.GGUFWriter, size: int) -> None:
    letters = sorted(ByteLevel.alphabet())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*letters, "ab", *(f"<name{number}>" for number in range(size - len(letters) - 1))])
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(2)


def _gguf_name(name: str) -> str:
    owner, _, kind = name.rpartition(".")
    if owner in _OUTSIDE:
        return f"{_OUTSIDE[owner]}.{kind}"
    _, _, number, inside = owner.split(".", 3)
    return f"blk.{number}.{_INSIDE[inside]}.{kind}"
