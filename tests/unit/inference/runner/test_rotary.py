"""Frequencies that depend on a sequence's length are settled for the longest one, and then stay."""

import pytest
import torch

from inference.runner.rotary import rotary_type, rotation_table, settle_rotary
from tests.testkit.tiny_models import LONGROPE_ORIGINAL, tiny_model


def _cosines(module, num_tokens, **options):
    return module(torch.zeros(1), torch.arange(num_tokens)[None], **options)[0]


@pytest.mark.parametrize("max_model_len", [LONGROPE_ORIGINAL, LONGROPE_ORIGINAL + 1])
def test_longrope_is_what_transformers_takes_for_a_sequence_as_long(max_model_len):
    expected = _cosines(tiny_model("phi3_longrope").model.rotary_emb, max_model_len)
    model = tiny_model("phi3_longrope")
    assert settle_rotary(model, max_model_len) == ["longrope"]
    for num_tokens in (3, max_model_len, 3):
        assert torch.equal(_cosines(model.model.rotary_emb, num_tokens), expected[:, :num_tokens])
    assert settle_rotary(model, max_model_len) == []


def test_each_kind_of_layer_has_its_own():
    parameters = {
        "full_attention": {
            "rope_type": "longrope", "rope_theta": 1e6, "short_factor": [1.0] * 8, "long_factor": [4.0] * 8,
            "original_max_position_embeddings": 32,
        },
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
    }  # fmt: skip
    model, same = (tiny_model("gemma3", rope_parameters=parameters) for _ in range(2))
    assert settle_rotary(model, 64) == ["longrope"]
    for kind in parameters:
        settled = _cosines(model.model.rotary_emb, 8, layer_type=kind)
        assert torch.equal(settled, _cosines(same.model.rotary_emb, 64, layer_type=kind)[:, :8])


def test_fixed_frequencies_are_left_alone():
    assert settle_rotary(tiny_model("llama3_rope"), 128) == []


def test_a_rotary_of_several_kinds_has_a_table_of_each():
    model, positions = tiny_model("gemma3"), torch.arange(9)
    assert rotary_type(tiny_model("llama"), 0) is None
    for layer, kind in enumerate(["sliding_attention", "sliding_attention", "full_attention"]):
        assert rotary_type(model, layer) == kind
        expected = _cosines(model.model.rotary_emb, 9, layer_type=kind)
        assert torch.equal(rotation_table(model, positions, 16, kind)[:, :8], expected[0, :, :8])


@pytest.mark.parametrize(("name", "width"), [("llama", 8), ("phi3_partial_rotary", 16), ("phi3_partial_rotary", 32)])
def test_a_table_has_the_models_cosines_and_sines_and_leaves_other_pairs_alone(name, width):
    model, positions = tiny_model(name), torch.tensor([0, 1, 5, 511])
    cosines, sines = rotation_table(model, positions, width).chunk(2, dim=1)
    expected = model.model.rotary_emb(torch.zeros(1), positions[None])
    half = expected[0].shape[-1] // 2
    for table, given, neutral in zip((cosines, sines), expected, (1, 0), strict=True):
        assert torch.equal(table[:, :half], given[0, :, :half])
        assert (table[:, half:] == neutral).all()
