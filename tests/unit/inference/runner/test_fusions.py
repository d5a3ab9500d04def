"""What fusing layers keeps, what it leaves alone, and that the rest of a model can be captured in a CUDA graph."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.attention import INTERFACE_NAME, TorchAttention
from inference.runner.fused_layer import FusedLayer
from inference.runner.fusions import decoder_layers, fuse_layers, one_block
from inference.runner.layer_parts import norm_of, parts_of
from inference.runner.linear import dense
from inference.runner.rotary import settle_rotary
from tests.testkit.tiny_models import CONFIGS, tiny_model


def _logits(model, num_tokens=12):
    model.set_attn_implementation(INTERFACE_NAME)
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    layout = KVLayout(config.num_hidden_layers, config.num_key_value_heads, head_dim, 16, model.dtype)
    backend = TorchAttention(KVPool(layout, 1, torch.device("cpu")))
    step = one_block(num_tokens, torch.device("cpu"))
    with torch.inference_mode():
        return model(input_ids=step.positions[None] * 11 % 300, position_ids=step.positions[None], use_cache=False,
                     paged=step, paged_backend=backend).logits[0].float()  # fmt: skip


@pytest.mark.parametrize("name", ["qwen3", "gemma3", "granite", "olmo2", "phi3_partial_rotary"])
def test_fused_layers_in_bf16_are_as_close_to_exact_as_the_definition_in_bf16(name):
    exact = _logits(tiny_model(name))
    plain = _logits(tiny_model(name).bfloat16())
    model = tiny_model(name).bfloat16()
    model.set_attn_implementation(INTERFACE_NAME)
    assert fuse_layers(model, dense) == (3, 3)
    assert (_logits(model) - exact).norm() <= 1.3 * (plain - exact).norm()


def test_a_layer_with_a_part_of_unknown_use_stays_as_it_is():
    model = tiny_model("llama")
    model.set_attn_implementation(INTERFACE_NAME)
    layers = decoder_layers(model)
    layers[0].self_attn.gate_proj = nn.Linear(48, 48)
    layers[1].mlp.up_proj = nn.Sequential(layers[1].mlp.up_proj)
    assert fuse_layers(model, dense) == (1, 3)
    assert [isinstance(layer, FusedLayer) for layer in layers] == [False, False, True]


def test_a_layer_of_known_parts_that_computes_something_else_stays_as_it_is(monkeypatch):
    model = tiny_model("llama")
    model.set_attn_implementation(INTERFACE_NAME)
    layers = decoder_layers(model)
    forward = layers[1].mlp.forward
    monkeypatch.setattr(layers[1].mlp, "forward", lambda x: forward(x) * 1.01)
    assert parts_of(layers[1]) is not None
    assert fuse_layers(model, dense) == (2, 3)
    assert not isinstance(layers[1], FusedLayer)


def test_a_layer_that_wants_more_than_it_is_tried_with_stays_as_it_is(monkeypatch):
    model = tiny_model("llama")
    model.set_attn_implementation(INTERFACE_NAME)
    layers = decoder_layers(model)
    forward = layers[0].forward
    monkeypatch.setattr(layers[0], "forward", lambda hidden, *, of_its_own, **options: forward(hidden, **options))
    assert fuse_layers(model, dense) == (2, 3)


def test_a_norm_of_one_plus_weight_is_seen_as_such_and_keeps_float32():
    norm = tiny_model("gemma2").bfloat16().model.norm
    found = norm_of(norm)
    assert found.weight.dtype == torch.float32
    assert torch.equal(found.weight, norm.weight.float() + 1)
    plain = tiny_model("llama").bfloat16().model.norm
    assert torch.equal(norm_of(plain).weight, plain.weight)
    assert norm_of(plain).weight.dtype == torch.bfloat16


class _HostTensors(TorchDispatchMode):
    """Notes operations that make a tensor on the host, which a graph on a device cannot replay."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        outputs = out if isinstance(out, tuple | list) else (out,)
        self.seen += [func for x in outputs if isinstance(x, torch.Tensor) and x.device.type != "meta"]
        return out


class _NoAttention:
    def __call__(self, layer, query, key, value, step, **options):
        return torch.empty_like(query)


@pytest.mark.parametrize("name", [*CONFIGS, "phi3_longrope", "gpt_neox", "cohere2"])
def test_a_pass_reads_no_value_on_the_host_and_makes_no_tensor_there(name):
    """On the meta device, where reading a value raises."""
    with torch.device("meta"):
        model = tiny_model(name)
    model.set_attn_implementation(INTERFACE_NAME)
    settle_rotary(model, 128)
    ids = torch.zeros(1, 5, dtype=torch.int64, device="meta")
    with torch.inference_mode(), _HostTensors() as mode:
        logits = model(input_ids=ids, position_ids=ids, use_cache=False, logits_to_keep=ids[0, :2], paged=None,
                       paged_backend=_NoAttention()).logits  # fmt: skip
    assert logits.shape == (1, 2, 300)
    assert not mode.seen
