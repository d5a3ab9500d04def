"""A converted GGUF file gives the same tokens as the model that it was made of, positions included, or is refused."""

from types import SimpleNamespace

import pytest
import torch
from gguf import GGUFReader, RopeScalingType
from transformers import AutoModelForCausalLM

from inference import gguf_convert
from inference.gguf_metadata import Metadata
from tests.testkit.gguf_files import write_gguf
from tests.testkit.tiny_models import tiny_model

_THETA = {"rope_theta": 10000.0}
_YARN = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 64}
_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def _add_yarn(writer):
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(8.0)
    writer.add_rope_scaling_orig_ctx_len(64)


def _add_linear(writer):
    writer.add_rope_scaling_type(RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(4.0)


def _no_scaling(writer):
    writer.add_rope_scaling_type(RopeScalingType.NONE)
    writer.add_tensor("rope_freqs.weight", torch.ones(4).numpy())


def _llama3_factors(model):
    """What llama.cpp's converter writes down of them."""
    scaled = model.model.rotary_emb.inv_freq
    plain = 1 / 10000.0 ** (torch.arange(0, 8, 2) / 8)
    return (plain / scaled).numpy()


@pytest.mark.parametrize(
    ("scaling", "more"),
    [
        ({"rope_type": "default"}, _no_scaling),
        ({"rope_type": "linear", "factor": 4.0}, _add_linear),
        (_YARN, _add_yarn),
        (_LLAMA3, None),
    ],
    ids=["none", "linear", "yarn", "llama3"],
)
def test_rotary_embeddings_are_scaled_as_the_file_says(scaling, more, tmp_path):
    model = tiny_model("qwen2", rope_parameters=_THETA | scaling, num_hidden_layers=1)
    if more is None:
        factors = _llama3_factors(model)
        assert factors.max() > 2

        def more(writer):
            writer.add_tensor("rope_freqs.weight", factors)

    gguf = write_gguf(model, tmp_path / "tiny.gguf", more)
    gguf_convert.convert(gguf, tmp_path / "tiny")
    converted = AutoModelForCausalLM.from_pretrained(tmp_path / "tiny", dtype=torch.float32)
    input_ids = torch.arange(100)[None]
    with torch.inference_mode():
        torch.testing.assert_close(converted(input_ids).logits, model(input_ids).logits, atol=1e-4, rtol=1e-4)


def test_a_file_that_lacks_a_weight_is_refused_with_its_name(tmp_path, capsys):
    missing = "model.layers.1.mlp.up_proj.weight"
    gguf = write_gguf(tiny_model("qwen2"), tmp_path / "tiny.gguf", without=missing)
    assert gguf_convert.main([str(gguf), str(tmp_path / "tiny")]) == 1
    assert f"lacks 1 of the model's weights, {missing} first" in capsys.readouterr().err
    assert not (tmp_path / "tiny").exists()


def test_a_file_with_biases_that_the_definition_does_not_have_is_refused(tmp_path, capsys):
    def more(writer):
        writer.add_tensor("blk.0.attn_output.bias", torch.ones(48).numpy())

    gguf = write_gguf(tiny_model("qwen2"), tmp_path / "tiny.gguf", more)
    assert gguf_convert.main([str(gguf), str(tmp_path / "tiny")]) == 1
    assert "has no place for" in capsys.readouterr().err


def test_a_kind_of_scaling_that_is_not_known_is_refused(tmp_path, capsys):
    def more(writer):
        writer.add_string("qwen2.rope.scaling.type", "spiral")
        writer.add_rope_scaling_factor(2.0)

    gguf = write_gguf(tiny_model("qwen2"), tmp_path / "tiny.gguf", more)
    assert gguf_convert.main([str(gguf), str(tmp_path / "tiny")]) == 1
    assert "'spiral'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [gguf]


@pytest.fixture
def long_and_windowed(tmp_path):
    def more(writer):
        writer.add_rope_scaling_orig_ctx_len(64)
        writer.add_rope_scaling_attn_factors(1.25)
        writer.add_sliding_window(20)
        writer.add_rope_dimension_count(6)
        writer.add_tensor("rope_factors_long.weight", torch.tensor([1.5, 2.0, 4.0, 8.0]).numpy())
        writer.add_tensor("rope_factors_short.weight", torch.tensor([1.0, 1.0, 1.5, 2.0]).numpy())

    return Metadata(GGUFReader(write_gguf(tiny_model("qwen2"), tmp_path / "tiny.gguf", more)))


def test_factors_by_length_windows_and_dimensions_without_position_reach_the_config(long_and_windowed):
    config = SimpleNamespace(
        rope_parameters={"rope_theta": 5.0}, sliding_window=None, original_max_position_embeddings=512,
        hidden_size=48, num_attention_heads=6,
    )  # fmt: skip
    gguf_convert._complete(config, long_and_windowed)
    assert config.rope_parameters == {
        "rope_theta": 5.0, "rope_type": "longrope", "long_factor": [1.5, 2.0, 4.0, 8.0],
        "short_factor": [1.0, 1.0, 1.5, 2.0], "original_max_position_embeddings": 64, "factor": 8.0,
        "attention_factor": 1.25, "partial_rotary_factor": 0.75,
    }  # fmt: skip
    assert (config.sliding_window, config.original_max_position_embeddings) == (20, 64)


def test_of_layers_that_rotate_in_two_ways_those_that_look_far_back_are_scaled(long_and_windowed):
    kinds = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
    config = SimpleNamespace(rope_parameters=kinds, sliding_window=7)
    gguf_convert._complete(config, long_and_windowed)
    assert config.rope_parameters["sliding_attention"] == {"rope_theta": 1e4}
    assert config.rope_parameters["full_attention"]["rope_type"] == "longrope"
    assert config.sliding_window == 7, "what the file's reader has understood stays"
