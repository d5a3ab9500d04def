"""A checkpoint's files that are missing, damaged or of another kind are refused by name, with what helps."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from inference.errors import ModelLoadError
from inference.runner.weight_files import check_files
from tests.testkit.tiny_models import tiny_model

_WEIGHT = "model.layers.1.mlp.up_proj.weight"
_INDEX = "model.safetensors.index.json"


@pytest.fixture
def shards(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path, max_shard_size="40KB")
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 3
    check_files(tmp_path)
    return files


@pytest.fixture
def whole(tmp_path):
    tiny_model("llama").save_pretrained(tmp_path)
    check_files(tmp_path)
    return tmp_path / "model.safetensors"


def _refused(folder, says):
    with pytest.raises(ModelLoadError, match=says):
        check_files(folder)


def test_a_missing_shard_is_named_and_how_many_are_missing(shards):
    shards[1].unlink()
    shards[2].unlink()
    _refused(shards[0].parent, rf"{shards[1].name} is missing \(2 of the {len(shards)} files")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "damaged or incomplete, with 0 bytes"),
        (b"<html>not found</html>", "damaged or incomplete, with 22 bytes"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 123\n", "git lfs pull"),
    ],
)
def test_a_shard_that_holds_something_else_is_named(shards, content, says):
    shards[1].write_bytes(content)
    _refused(shards[0].parent, rf"{shards[1].name}: .*{says}")


def test_a_shard_that_was_cut_off_is_named(shards):
    shards[1].write_bytes(shards[1].read_bytes()[:-1])
    _refused(shards[0].parent, rf"{shards[1].name}: damaged or incomplete")


@pytest.mark.parametrize("index", ["{", "[]", "{}", '{"weight_map": {}}', '{"weight_map": {"a": 1}}'])
def test_an_index_that_says_nothing_of_files_is_refused(shards, index):
    (shards[0].parent / _INDEX).write_text(index)
    _refused(shards[0].parent, rf"{_INDEX}: .*Fetch it again")


def test_weights_under_another_name_are_found_by_nobody_and_the_message_says_which_name_would_do(whole):
    whole.rename(whole.with_name("weights.safetensors"))
    _refused(whole.parent, r"Rename weights\.safetensors to model\.safetensors")


def test_shards_without_their_index_and_adapters_without_their_model_are_refused(shards):
    (shards[0].parent / _INDEX).unlink()
    _refused(shards[0].parent, "Fetch the checkpoint's index")
    shards[0].rename(shards[0].with_name("adapter_model.safetensors"))
    _refused(shards[0].parent, "adapter alone")


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.complex64])
def test_a_weight_that_is_no_floating_point_number_is_named_with_its_type(whole, dtype):
    weights = load_file(whole)
    weights[_WEIGHT] = weights[_WEIGHT].to(dtype)
    save_file(weights, whole)
    _refused(whole.parent, rf"{_WEIGHT} is stored as [A-Z]\w+ \(1 of .*not quantised")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn])
def test_floating_point_numbers_of_any_width_pass_and_masks_of_old_checkpoints(whole, dtype):
    weights = load_file(whole)
    weights[_WEIGHT] = weights[_WEIGHT].to(dtype)
    weights["h.0.attn.bias"] = torch.ones(2, 2, dtype=torch.uint8)
    save_file(weights, whole)
    check_files(whole.parent)


def test_a_header_that_names_an_unknown_type_is_refused_with_it(whole):
    data = whole.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header[_WEIGHT]["dtype"] = "F99"
    text = json.dumps(header).encode()
    whole.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])
    _refused(whole.parent, "F99")
