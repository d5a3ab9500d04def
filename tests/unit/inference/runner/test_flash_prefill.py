"""When FlashAttention 4 computes prefills, and what is said where it cannot: over a stand-in, on the CPU."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, replace
from types import ModuleType, SimpleNamespace

import pytest
import torch

from inference.config import EngineConfig
from inference.errors import ModelLoadError
from inference.paged_kv.pool import KVLayout, KVPool
from inference.runner.flash_prefill import FlashPrefill, Unavailable, find_flash, flash_prefill
from inference.runner.loader import load
from tests.testkit.fake_flash import flash_attn_varlen_func

LAYOUT = KVLayout(num_layers=1, num_kv_heads=2, head_dim=16, block_size=16, dtype=torch.bfloat16)
SHAPE = SimpleNamespace(num_heads=4, num_kv_heads=2, head_dim=16, query_width=64, qkv_width=128)
HOPPER = (9, 0)


@dataclass(frozen=True)
class Layer:
    """What is asked of a kernels.heads.LayerAttention, which needs Triton."""

    window: int | None = None
    soft_cap: float = 0.0
    scale: float = 0.25
    keys: torch.Tensor | None = None
    values: torch.Tensor | None = None


KINDS = [Layer(), Layer(window=512), Layer(soft_cap=30.0), Layer(window=64, soft_cap=30.0)]


@pytest.fixture
def installed(monkeypatch):
    """flash_attn.cute is the stand-in, and the card one that it takes."""
    package, module = ModuleType("flash_attn"), ModuleType("flash_attn.cute")
    module.flash_attn_varlen_func = flash_attn_varlen_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.setitem(sys.modules, "flash_attn.cute", module)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: HOPPER)
    return module


@pytest.fixture
def missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: HOPPER)


def _pool(**changes):
    return KVPool(replace(LAYOUT, **changes), 4, torch.device("cpu"))


def _prefill(attend=flash_attn_varlen_func, **options):
    return FlashPrefill(attend, SHAPE, LAYOUT, torch.device("cpu"), **options)


def _except(**wrong):
    """The stand-in, called with some of its arguments replaced."""
    return lambda *tensors, **options: flash_attn_varlen_func(*tensors, **(options | wrong))


def test_it_is_used_by_itself_where_it_is_installed(installed):
    assert flash_prefill("auto", SHAPE, _pool()).takes(Layer())
    assert flash_prefill("flash", SHAPE, _pool()).takes(Layer())


def test_it_is_not_looked_for_where_triton_is_wanted(installed):
    assert flash_prefill("triton", SHAPE, _pool()) is None


def test_without_it_our_kernel_is_used_and_the_log_says_why(missing, caplog):
    with caplog.at_level(logging.INFO, "headrace.engine"):
        assert flash_prefill("auto", SHAPE, _pool()) is None
    assert "flash-attn-4 is not installed" in caplog.text


def test_asking_for_it_where_it_is_not_installed_says_how_to_install_it(missing):
    with pytest.raises(ModelLoadError, match=r"--attention flash: flash-attn-4 is not installed\. .*pip install"):
        flash_prefill("flash", SHAPE, _pool())


@pytest.mark.parametrize(
    ("changes", "because"),
    [
        ({"dtype": torch.float32}, r"bf16 and fp16, not in float32\. Use --dtype bf16"),
        ({"head_dim": 512}, r"up to 256 dimensions, this model's have 512\. Use --attention triton"),
    ],
)
def test_a_cache_that_it_does_not_take_is_refused_or_left_to_our_kernel(installed, changes, because):
    with pytest.raises(ModelLoadError, match=because):
        flash_prefill("flash", SHAPE, _pool(**changes))
    assert flash_prefill("auto", SHAPE, _pool(**changes)) is None


@pytest.mark.parametrize(("capability", "fits"), [((8, 9), False), ((9, 0), True), ((10, 3), True), ((12, 0), False)])
def test_cards_without_paged_attention_are_named(installed, capability, fits):
    found = find_flash(LAYOUT, capability)
    assert fits == (found is flash_attn_varlen_func)
    assert fits or ".".join(map(str, capability)) in found.because


def test_an_older_flash_attn_without_this_module_is_not_it(monkeypatch):
    package = ModuleType("flash_attn")
    package.__path__ = []
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    monkeypatch.delitem(sys.modules, "flash_attn.cute", raising=False)
    assert find_flash(LAYOUT, HOPPER) == Unavailable(
        "flash-attn-4 is not installed", "Install it: pip install --pre 'flash-attn-4[cu13]'."
    )


def test_a_package_that_breaks_while_it_is_imported_is_named_with_its_error(tmp_path, monkeypatch):
    for name in ("flash_attn", "flash_attn.cute"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    module = tmp_path / "flash_attn" / "cute.py"
    module.parent.mkdir()
    (tmp_path / "flash_attn" / "__init__.py").touch()
    module.write_text("import a_module_that_is_nowhere")
    assert "lacks the module a_module_that_is_nowhere" in find_flash(LAYOUT, HOPPER).because
    module.write_text("raise OSError('libcute_dsl_runtime.so: cannot open')")
    sys.modules.pop("flash_attn.cute", None)
    assert "libcute_dsl_runtime.so: cannot open" in find_flash(LAYOUT, HOPPER).because
    sys.modules.pop("flash_attn", None)


@pytest.mark.parametrize("layer", KINDS)
def test_a_kind_of_layer_that_comes_out_right_is_taken_after_one_trial(layer):
    calls = []

    def attend(*tensors, **options):
        calls.append(options)
        return flash_attn_varlen_func(*tensors, **options)

    prefill = _prefill(attend)
    assert not prefill.is_used
    assert prefill.takes(layer)
    assert prefill.takes(layer)
    assert prefill.is_used
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("layer", "wrong"),
    [
        (Layer(window=512), {"window_size": (None, None)}),
        (Layer(window=512), {"window_size": (20, 0)}),
        (Layer(window=512), {"window_size": (18, 0)}),
        *[(Layer(soft_cap=cap), {"softcap": 0.0}) for cap in (2.0, 30.0, 50.0, 100.0)],
        (Layer(), {"softmax_scale": 0.3}),
    ],
)
def test_a_kind_that_comes_out_wrong_is_left_to_our_kernel(layer, wrong, caplog):
    prefill = _prefill(_except(**wrong))
    assert not prefill.takes(layer)
    assert not prefill.is_used
    assert "is wrong where a layer has" in caplog.text


def test_keys_past_a_chunk_are_found_out_and_so_are_keys_of_another_row():
    def one_too_many(*tensors, seqused_k, **options):
        return flash_attn_varlen_func(*tensors, seqused_k=seqused_k + 1, **options)

    def another(*tensors, page_table, **options):
        return flash_attn_varlen_func(*tensors, page_table=page_table.roll(1, 0), **options)

    assert not _prefill(one_too_many).takes(Layer())
    assert not _prefill(another).takes(Layer())


def test_a_kind_that_it_cannot_compile_is_left_to_our_kernel_and_others_are_not(caplog):
    def attend(*tensors, softcap, **options):
        assert not softcap, "score mods are not supported here"
        return flash_attn_varlen_func(*tensors, softcap=softcap, **options)

    prefill = _prefill(attend)
    assert prefill.takes(Layer())
    assert not prefill.takes(Layer(soft_cap=30.0))
    assert prefill.is_used
    assert "scores capped at 30.0: AssertionError: score mods are not supported here" in caplog.text


def test_where_it_is_required_a_failed_trial_is_an_error_that_says_what_to_do():
    prefill = _prefill(_except(softcap=0.0), is_required=True)
    assert prefill.takes(Layer())
    with pytest.raises(ModelLoadError, match=r"capped at 30\.0, by \d+%\. Use --attention triton"):
        prefill.takes(Layer(soft_cap=30.0))


def test_a_trial_that_runs_out_of_memory_is_no_verdict():
    def attend(*tensors, **options):
        raise torch.OutOfMemoryError

    with pytest.raises(torch.OutOfMemoryError):
        _prefill(attend).takes(Layer())


@pytest.mark.parametrize("attention", ["triton", "flash"])
def test_the_cpu_has_no_choice_of_attention(attention, tmp_path):
    with pytest.raises(ModelLoadError, match=f"--attention {attention} is for --device cuda"):
        load(EngineConfig("tiny", tmp_path, dtype="fp32", attention=attention))
