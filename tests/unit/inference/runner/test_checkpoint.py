"""What a checkpoint's config and weights may be, and what is answered to everything else."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.config import EngineConfig
from inference.errors import ModelLoadError
from inference.runner import memory
from inference.runner.checkpoint import eos_token_ids, load_weights, read_config
from inference.runner.loader import load
from tests.testkit.tiny_models import save_tiny_model, tiny_config

_UP = "model.layers.1.mlp.up_proj.weight"


def _random(folder, options):
    (folder / "config.json").write_text(json.dumps(options))
    return load(EngineConfig("tiny", folder, random_weights=True, dtype="fp32", kv_bytes=8 << 20, max_rows=2))


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("num_hidden_layers", 0, "must be from 1"),
        ("num_hidden_layers", -1, "must be from 1"),
        ("num_hidden_layers", 10**12, "must be from 1 to 10000"),
        ("max_position_embeddings", -1, "must be from 2"),
        ("max_position_embeddings", 1, "must be from 2"),  # no room for a prompt and an answer
        ("max_position_embeddings", 10**30, "must be from 2"),
        ("vocab_size", 0, "must be from 1"),
        ("num_attention_heads", 0, "cannot be read"),
        ("hidden_size", 0, "makes no model"),
        ("head_dim", 0, "makes no model"),
        ("dtype", [], "cannot be read"),
        ("dtype", math.nan, "cannot be read"),
        ("intermediate_size", 10**12, r"take [\d,]+\.\d GiB as float32, and .* Serve a smaller model"),
        ("hidden_act", "no-such-thing", "KeyError: 'no-such-thing'"),
    ],
)
def test_a_value_that_no_model_can_have_is_refused_in_a_sentence(field, value, says, tmp_path):
    with pytest.raises(ModelLoadError, match=says) as refused:
        _random(tmp_path, tiny_config("llama") | {field: value})
    assert "\n" not in str(refused.value)
    assert "Exception raised from" not in str(refused.value)


def test_a_model_that_is_code_of_its_own_is_refused_without_a_question_to_anybody(tmp_path):
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (tmp_path / "config.json").write_text(json.dumps(own))
    with pytest.raises(ModelLoadError, match="code that comes with it"):
        read_config(tmp_path)


def test_parts_of_a_decoder_with_a_config_of_their_own_are_not_taken_for_other_inputs(tmp_path):
    with pytest.raises(ModelLoadError, match=r"gives no max_position_embeddings"):
        _random(tmp_path, {"model_type": "mpt", "n_layers": 2, "d_model": 32, "n_heads": 2, "vocab_size": 64})


def test_memory_that_holds_the_weights_only_with_what_is_swapped_is_enough(monkeypatch):
    model = torch.nn.Linear(1024, 1024, bias=False, device="meta")
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: type("Memory", (), {"available": 3 << 20}))
    monkeypatch.setattr(memory.psutil, "swap_memory", lambda: type("Memory", (), {"free": 1 << 20}))
    memory.check_weights_fit(model, torch.float32)
    monkeypatch.setattr(memory.psutil, "swap_memory", lambda: type("Memory", (), {"free": 0}))
    memory.check_weights_fit(model, torch.bfloat16)
    with pytest.raises(ModelLoadError, match=r"0\.0 GiB as float32"):
        memory.check_weights_fit(model, torch.float32)


class _Checkpoint:
    def __init__(self, folder):
        self.folder = save_tiny_model("llama", folder)

    def load(self):
        return load_weights(read_config(self.folder), EngineConfig("llama", self.folder, dtype="fp32"))

    def change(self, **weights):
        file = self.folder / "model.safetensors"
        save_file(load_file(file) | weights, file, metadata={"format": "pt"})

    def refused(self, says):
        with pytest.raises(ModelLoadError, match=says):
            self.load()


@pytest.fixture
def checkpoint(tmp_path):
    return _Checkpoint(tmp_path / "llama")


@pytest.mark.parametrize(
    ("name", "value"), [(_UP, math.nan), ("model.embed_tokens.weight", math.inf), ("model.norm.weight", -math.inf)]
)
def test_one_number_that_is_none_is_found_in_any_weight_and_the_weight_named(name, value, checkpoint):
    weight = load_file(checkpoint.folder / "model.safetensors")[name]
    weight.view(-1)[-1] = value
    checkpoint.change(**{name: weight})
    checkpoint.refused(rf"{name} holds infinities or NaN")


def test_finite_weights_whose_sum_overflows_are_served(checkpoint):
    checkpoint.change(**{_UP: torch.full((80, 48), 1e38)})
    checkpoint.load()


def test_a_weight_of_another_shape_is_named_with_both(checkpoint):
    checkpoint.change(**{_UP: torch.zeros(40, 48)})
    checkpoint.refused(rf"{_UP}, is 40 x 48 and should be 80 x 48")


@pytest.mark.parametrize(
    "name", ["self_attn.q_proj.bias", "self_attn.q_norm.weight", "mlp.up_proj.weight_scale", "extra_layernorm.weight"]
)
def test_a_layer_that_has_more_weights_than_its_definition_is_not_that_model(name, checkpoint):
    checkpoint.change(**{f"model.layers.0.{name}": torch.ones(48)})
    checkpoint.refused(rf"knows nothing of 1 of the weights in the checkpoint's layers, model\.layers\.0\.{name} first")


def test_tables_of_old_checkpoints_and_weights_beside_the_layers_are_left_alone_with_a_word(checkpoint, caplog):
    checkpoint.change(**{
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4),
        "model.layers.0.self_attn.k_scale": torch.ones(1),
        "model.layers.3.mlp.up_proj.weight": torch.ones(80, 48), "score.weight": torch.ones(2, 48),
    })  # fmt: skip
    checkpoint.load()
    assert "3 weights of the checkpoint are not used" in caplog.text


@pytest.mark.parametrize(
    ("generation", "ids"),
    [
        ({"eos_token_id": 5}, (5,)), ({"eos_token_id": [5, 7, 5]}, (5, 7)), ({"eos_token_id": None}, ()), ({}, (2,)),
        ({"eos_token_id": [-1, 5, 300, 10**12]}, (5,)),  # the vocabulary ends at 299
    ],
)  # fmt: skip
def test_what_ends_a_turn_is_one_id_or_several_or_none_of_the_vocabulary(generation, ids, checkpoint):
    (checkpoint.folder / "generation_config.json").write_text(json.dumps(generation))
    assert eos_token_ids(checkpoint.folder, read_config(checkpoint.folder)) == ids


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"eos_token_id": "x"}', '{"eos_token_id": [[2]]}', '{"eos_token_id": true}']
)
def test_a_generation_config_that_cannot_be_read_is_named(text, checkpoint):
    (checkpoint.folder / "generation_config.json").write_text(text)
    with pytest.raises(ModelLoadError, match=r"generation_config\.json: "):
        eos_token_ids(checkpoint.folder, read_config(checkpoint.folder))
