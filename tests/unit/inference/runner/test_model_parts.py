"""Which models a device's own kernels can run whole, by their parts, and why others cannot."""

import pytest
import torch
from torch import nn

from inference.runner.attention import INTERFACE_NAME
from inference.runner.model_parts import ModelParts, Unfusable, model_parts
from tests.testkit.tiny_models import CUDA_CONFIGS, FUSED_ON_CUDA, tiny_model

REASONS = {
    "gpt_neox": "3 of 3 have parts of unknown use",
    "ministral3": "3 of 3 have parts of unknown use",
}


def _set_to_pages(name, **changes):
    model = tiny_model(name, **changes)
    model.set_attn_implementation(INTERFACE_NAME)
    return model


@pytest.mark.parametrize("name", sorted({*FUSED_ON_CUDA, "phi3_longrope"} - CUDA_CONFIGS.keys()))
def test_layers_of_known_parts_between_known_ends_are_for_kernels(name):
    parts = model_parts(_set_to_pages(name))
    assert isinstance(parts, ModelParts)
    assert [seen.index for seen in parts.layers] == [0, 1, 2]


@pytest.mark.parametrize("name", REASONS)
def test_layers_that_kernels_cannot_run_say_why(name):
    assert model_parts(_set_to_pages(name)) == Unfusable(REASONS[name])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_multipliers_are_those_of_the_model(dtype):
    parts = model_parts(_set_to_pages("granite", logits_scaling=3.0).to(dtype))
    assert isinstance(parts, ModelParts)
    assert (parts.embedding_multiplier, parts.logits_multiplier) == (3.0, 1 / 3.0)
    assert {seen.parts.residual_multiplier for seen in parts.layers} == {0.4}


def test_a_cap_on_logits_and_a_scale_of_embeddings_are_those_of_the_model():
    parts = model_parts(_set_to_pages("gemma2").bfloat16())
    assert isinstance(parts, ModelParts)
    assert (parts.logits_cap, parts.logits_multiplier) == (5.0, 1.0)
    assert parts.embedding_multiplier == float(torch.tensor(48**0.5, dtype=torch.bfloat16))


def test_layers_that_rotate_in_several_ways_have_each_their_own():
    parts = model_parts(_set_to_pages("gemma3"))
    assert isinstance(parts, ModelParts)
    assert parts.rotary_types == ["sliding_attention", "sliding_attention", "full_attention"]


def _wrap(monkeypatch, module, change):
    forward = module.forward
    monkeypatch.setattr(module, "forward", lambda *args, **options: change(forward(*args, **options)))


def test_what_happens_around_the_layers_unseen_is_noticed(monkeypatch):
    model = _set_to_pages("granite")
    with monkeypatch.context() as patch:
        _wrap(patch, model.model.embed_tokens, lambda x: x * 1.01)
        assert model_parts(model) == Unfusable("embeddings are changed before the first")
    with monkeypatch.context() as patch:
        _wrap(patch, model.lm_head, lambda x: x * 1.01)
        assert model_parts(model) == Unfusable("logits are changed after the head")
    with monkeypatch.context() as patch:
        _wrap(patch, model.model.norm, lambda x: x * 1.01)
        assert model_parts(model) == Unfusable("logits are changed after the head")
    assert isinstance(model_parts(model), ModelParts)
    model.model.norm = nn.Identity()
    assert model_parts(model) == Unfusable("the last norm or head is of another kind")


def test_logits_capped_at_30_are_seen_though_an_untrained_models_are_small(monkeypatch):
    model = _set_to_pages("llama")

    def capped(output):
        output.logits = 30 * torch.tanh(output.logits / 30)
        return output

    _wrap(monkeypatch, model, capped)
    assert model_parts(model) == Unfusable("logits are changed after the head")


class _Turned(nn.Module):
    """Gives two passes the rotary embeddings that it has, and others to whoever asks later."""

    def __init__(self, rotary):
        super().__init__()
        self.rotary, self.count = rotary, 0

    def forward(self, *args, **options):
        self.count += 1
        cosines, sines = self.rotary(*args, **options)
        return (cosines, sines) if self.count <= 2 else (sines, cosines)


def test_rotary_embeddings_that_are_not_those_of_the_models_own_table_are_noticed():
    model = _set_to_pages("qwen2")
    model.model.rotary_emb = _Turned(model.model.rotary_emb)
    assert model_parts(model) == Unfusable("they differ in their rotary embeddings")


def test_mlps_of_several_widths_do_not_share_a_scratch():
    model = _set_to_pages("llama")
    mlp = model.model.layers[1].mlp
    mlp.gate_proj, mlp.up_proj, mlp.down_proj = nn.Linear(48, 96), nn.Linear(48, 96), nn.Linear(96, 48)
    assert model_parts(model) == Unfusable("their MLPs differ in width")


def test_heads_that_are_normed_one_by_one_have_one_epsilon():
    for name, because in (("qwen3", "1 of 3 norm queries otherwise than keys"), ("olmo2", None)):
        model = _set_to_pages(name)
        model.model.layers[2].self_attn.k_norm.variance_epsilon *= 1000
        parts = model_parts(model)
        assert isinstance(parts, ModelParts) if because is None else parts == Unfusable(because)


def test_another_activation_is_for_no_kernel():
    gelu = _set_to_pages("llama", hidden_act="gelu")
    assert model_parts(gelu) == Unfusable("3 of 3 have another activation than SiLU or tanh's GELU")
