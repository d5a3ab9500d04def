"""What can be served is found by running the model, and what cannot is refused with its reason before it serves."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from inference.config import EngineConfig
from inference.errors import ModelLoadError
from inference.runner import loader, probe
from inference.runner.loader import load
from inference.runner.memory import memory_for
from tests.testkit.tiny_models import save_tiny_model, tiny_config, tiny_model

_TINY = {
    "vocab_size": 300, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 6,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.2, "pad_token_id": 0,
}  # fmt: skip
REFUSED = {
    "t5": ({}, "it is an encoder-decoder"),
    "gemma3": ({}, "it also takes vision inputs"),
    "mamba": ({"num_hidden_layers": 2}, "layers of linear_attention"),
    "llama4_text": (_TINY | {"head_dim": 8}, "layers of chunked_attention"),
    "clip_text_model": ({}, "no causal language model"),
    "bloom": ({}, "gives no max_position_embeddings"),
    "bert": (_TINY, "looks ahead"),
    "big_bird": (_TINY, "2 of its 2 layers do not call Transformers' attention interface"),
    "gpt_oss": (_TINY | {"num_local_experts": 4, "head_dim": 8}, "its attention depends on s_aux"),
    "deepseek_v3": (
        _TINY | {"num_key_value_heads": 6, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 16,
                 "qk_rope_head_dim": 8, "v_head_dim": 16, "first_k_dense_replace": 2},
        "its keys have 24 dimensions and its values 16",
    ),
    "diffllama": (_TINY | {"head_dim": 8}, "more than once a pass"),
    "whisper": (  # its table of positions is as long as another key says
        {"vocab_size": 300, "d_model": 48, "decoder_layers": 2, "encoder_layers": 2, "decoder_attention_heads": 2,
         "encoder_attention_heads": 2, "decoder_ffn_dim": 64, "max_target_positions": 40, "is_encoder_decoder": False,
         "num_hidden_layers": 2, "max_position_embeddings": 128, "pad_token_id": 0},
        "has no position 127",
    ),
    "bart": (
        {"vocab_size": 300, "d_model": 48, "decoder_layers": 3, "encoder_layers": 2, "decoder_attention_heads": 2,
         "decoder_ffn_dim": 64, "max_position_embeddings": 128, "is_encoder_decoder": False, "pad_token_id": 0},
        "3 layers call attention, where config.json gives 2",
    ),
    "doge": (_TINY | {"head_dim": 8}, "masks attention in a way of its own"),
}  # fmt: skip


def _random(tmp_path, options, **engine_options):
    (tmp_path / "config.json").write_text(json.dumps(options))
    options = {"random_weights": True, "dtype": "fp32", "kv_bytes": 8 << 20, "max_rows": 2} | engine_options
    return load(EngineConfig("tiny", tmp_path, **options))


@pytest.mark.parametrize("model_type", REFUSED)
def test_an_architecture_that_needs_more_than_paged_attention_is_refused_with_its_reason(model_type, tmp_path):
    options, reason = REFUSED[model_type]
    with pytest.raises(ModelLoadError, match=reason):
        _random(tmp_path, {"model_type": model_type} | options)


def test_a_config_that_makes_no_model_says_so(tmp_path):
    with pytest.raises(ModelLoadError, match=r"makes no model of config\.json"):
        _random(tmp_path, tiny_config("llama") | {"hidden_act": "no-such-activation"})
    with pytest.raises(ModelLoadError, match=r"config\.json cannot be read"):
        _random(tmp_path, tiny_config("llama") | {"hidden_size": "wide"})


def test_what_the_definition_tells_is_refused_before_the_weights_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "load_weights", lambda *_: pytest.fail("weights are read"))
    for model_type in ("bert", "deepseek_v3", "diffllama", "gpt_oss"):
        with pytest.raises(ModelLoadError, match=REFUSED[model_type][1]):
            _random(tmp_path, {"model_type": model_type} | REFUSED[model_type][0])
    with pytest.raises(ModelLoadError, match="Raise --kv-memory"):
        _random(tmp_path, tiny_config("llama"), kv_bytes=1000)


def test_weights_that_are_not_all_there_are_refused(tmp_path):
    file = save_tiny_model("llama", tmp_path / "llama") / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    config = EngineConfig("llama", file.parent, dtype="fp32", kv_bytes=8 << 20)
    with pytest.raises(ModelLoadError, match=r"lacks 1 of the model's weights, model\.layers\.1\.mlp\.up_proj\.weight"):
        load(config)
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(ModelLoadError, match=r"model\.safetensors: damaged or incomplete"):
        load(config)


class _Remembering(nn.Module):
    """A layer that adds the mean of what it has seen in this pass: state beside keys and values."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, hidden_states, *args, **options):
        out = self.layer(hidden_states, *args, **options)
        return out + hidden_states.cumsum(1) / torch.arange(1, hidden_states.shape[1] + 1)[:, None]


class _Windowed(nn.Module):
    """Looks back two tokens in the mask that it is given, and tells attention nothing of it."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, hidden_states, *args, attention_mask=None, **options):
        if attention_mask is not None:
            far = torch.ones_like(attention_mask, dtype=torch.bool).tril(-2)
            attention_mask = attention_mask.masked_fill(far, torch.finfo(attention_mask.dtype).min)
        return self.layer(hidden_states, *args, attention_mask=attention_mask, **options)


@pytest.mark.parametrize("wrapper", [_Remembering, _Windowed])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_and_masks_that_the_pages_do_not_know_show_in_the_logits(wrapper, dtype):
    model = tiny_model("qwen3").to(dtype)
    probe.probe(model, 3, 512)
    model.model.layers[1] = wrapper(model.model.layers[1])
    with pytest.raises(ModelLoadError, match="gives other logits than run whole"):
        probe.probe(model, 3, 512)


def test_a_window_that_only_the_mask_knows_is_refused_though_it_is_longer_than_the_probe():
    model = tiny_model("gemma3")
    for layer in model.model.layers:
        layer.self_attn.sliding_window = None
    with pytest.raises(ModelLoadError, match="gives other logits than run whole"):
        probe.probe(model, 3, 512)
    probe.probe(model, 3, 16)  # no sequence fills the window


def test_the_probe_leaves_windows_as_they_were():
    model = tiny_model("gemma3")
    before = [layer.self_attn.sliding_window for layer in model.model.layers]
    assert probe.probe(model, 3, 512) == probe.KVShape(num_layers=3, num_heads=6, num_kv_heads=2, head_dim=16)
    assert [layer.self_attn.sliding_window for layer in model.model.layers] == before == [16, 16, None]
    assert model.config.sliding_window == 16


@pytest.mark.parametrize(
    ("step", "says"),
    [
        ("load_weights", r"weights do not fit .* \(tried to allocate 2\.00 GiB\)\. Serve a smaller model"),
        ("probe", "weights do not fit"),
    ],
)
def test_out_of_memory_says_what_to_change(step, says, tmp_path, monkeypatch):
    def out_of_memory(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 9.00 GiB in all.")

    monkeypatch.setattr(loader, step, out_of_memory)
    with pytest.raises(ModelLoadError, match=says):
        _random(tmp_path, tiny_config("llama"))


def test_memory_too_small_without_an_option_does_not_blame_the_option(tmp_path, monkeypatch):
    monkeypatch.setattr(loader, "free_kv_bytes", lambda _: 5000)
    with pytest.raises(ModelLoadError, match=r"free for the KV cache beside the model, 5000 bytes, .*serve a smaller"):
        _random(tmp_path, tiny_config("llama"), kv_bytes=None)


@pytest.mark.parametrize("stage", ["pool", "steps"])
def test_each_stage_on_the_device_has_its_own_remedy(stage):
    with pytest.raises(ModelLoadError, match="--kv-memory"), memory_for(stage):
        raise torch.OutOfMemoryError("CUDA out of memory.")


def test_a_context_without_room_for_an_answer_is_refused(tmp_path):
    with pytest.raises(ModelLoadError, match="--max-model-len 1: a prompt and its answer"):
        _random(tmp_path, tiny_config("llama"), max_model_len=1)
