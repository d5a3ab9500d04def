"""Prefills by another's attention: with its stand-in in plain torch, and with FlashAttention 4 where it is installed.

Runs on CUDA. With TRITON_INTERPRET=1 what needs no FlashAttention 4 runs on the CPU, in Triton's interpreter.
"""

from __future__ import annotations

import importlib.util
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

triton = pytest.importorskip("triton")

from transformers import AutoModelForCausalLM  # noqa: E402

from inference.paged_kv.pool import KVLayout, KVPool  # noqa: E402
from inference.runner import flash_prefill  # noqa: E402
from inference.runner.cuda_inputs import PackedInputs, PackedShape  # noqa: E402
from inference.runner.cuda_model import DeviceModel  # noqa: E402
from inference.runner.cuda_unfused import UnfusedModel  # noqa: E402
from inference.runner.flash_prefill import FlashPrefill  # noqa: E402
from inference.runner.kernels.attention import PagedAttention  # noqa: E402
from inference.runner.kernels.chunks import Chunks  # noqa: E402
from inference.runner.kernels.heads import HeadShape, LayerAttention  # noqa: E402
from inference.runner.model_parts import ModelParts, model_parts  # noqa: E402
from inference.step import ScheduledRow  # noqa: E402
from tests.testkit import kernels  # noqa: E402
from tests.testkit.device_rows import (  # noqa: E402
    MAX_LEN,
    DeviceRows,
    random_prompts,
    tiny_model_for_pages,
    transformers_logits,
)
from tests.testkit.fake_flash import flash_attn_varlen_func  # noqa: E402
from tests.testkit.kernels import DTYPE, INTERPRETED, RUNS_KERNELS  # noqa: E402
from tests.testkit.local_engine import loaded, local_engine  # noqa: E402
from tests.testkit.tiny_models import VOCAB, save_tiny_model  # noqa: E402

DEVICE = torch.device(kernels.DEVICE)
pytestmark = RUNS_KERNELS
BLOCK, NUM_ROWS, BLOCKS_PER_ROW = 16, 5, 40
SPARE_ROW = NUM_ROWS
# (row, start, number of tokens)
SPANS = ((3, 0, 70), (0, 40, 1), (2, 200, 131), (4, 500, 140))
OTHER_SPANS = ((1, 17, 90), (4, 64, 1))
if INTERPRETED:
    SPANS = ((3, 0, 20), (0, 30, 1), (2, 100, 40))
SHAPES = [HeadShape(4, 2, 16), HeadShape(6, 2, 64), HeadShape(8, 1, 128), HeadShape(4, 4, 256)]
KINDS = [(None, 0.0), (37, 0.0), (None, 20.0), (37, 20.0)]


_IS_INSTALLED = all(importlib.util.find_spec(name) is not None for name in ("flash_attn", "flash_attn.cute"))


def needs_flash(test):
    """Warnings while the package compiles are no errors of ours."""
    test = pytest.mark.filterwarnings("ignore")(test)
    return pytest.mark.skipif(INTERPRETED or not _IS_INSTALLED, reason="needs the package flash-attn-4")(test)


class World:
    """Rows over scattered blocks of a pool that is full of random keys and values, those of new tokens too."""

    def __init__(self, shape: HeadShape, window=None, soft_cap=0.0, attend=None, dtype=DTYPE) -> None:
        self.shape = shape
        self.layout = KVLayout(1, shape.num_kv_heads, shape.head_dim, BLOCK, dtype)
        pool = KVPool(self.layout, NUM_ROWS * BLOCKS_PER_ROW + 1, DEVICE)
        for cache in (pool.keys[0], pool.values[0]):
            cache.normal_()
        order = torch.randperm(pool.num_blocks - 1, dtype=torch.int32, device=DEVICE)
        self.table = torch.full((NUM_ROWS + 1, BLOCKS_PER_ROW), pool.num_blocks - 1, dtype=torch.int32, device=DEVICE)
        self.table[:NUM_ROWS] = order.view(NUM_ROWS, BLOCKS_PER_ROW)
        self.layer = LayerAttention(pool.keys[0], pool.values[0], 0.3, window, soft_cap=soft_cap)
        self.flash = None if attend is None else FlashPrefill(attend, shape, self.layout, DEVICE, is_required=True)

    def paged(self, prefills=None) -> PagedAttention:
        return PagedAttention(
            self.shape, self.table, BLOCK, max_model_len=BLOCKS_PER_ROW * BLOCK, max_batch=8, prefills=prefills
        )

    def qkv(self, num_tokens: int) -> torch.Tensor:
        return torch.randn(num_tokens, self.shape.qkv_width, device=DEVICE).to(self.layout.dtype) * 2

    def chunks(self, inputs: PackedInputs) -> Chunks:
        listed = inputs.chunks
        return Chunks(listed.ends, listed.num_keys, self.table[listed.rows])


def _rows(spans) -> list[ScheduledRow]:
    return [ScheduledRow(row, start, count, samples=True) for row, start, count in spans]


def _load(inputs: PackedInputs, spans) -> PackedInputs:
    inputs.buffer.copy_(torch.from_numpy(inputs.shape.pack(_rows(spans), SPARE_ROW)))
    return inputs


def _num_tokens(spans) -> int:
    return sum(count for *_, count in spans)


def _close(got: torch.Tensor, expected: torch.Tensor, relative: float = 0.01) -> None:
    got, expected = got.float(), expected.float()
    assert torch.isfinite(got).all()
    assert (got - expected).norm() <= relative * expected.norm()


@pytest.mark.parametrize("has_room", [False, True])
@pytest.mark.parametrize(("window", "soft_cap"), KINDS)
@pytest.mark.parametrize("shape", SHAPES[:2] if INTERPRETED else SHAPES)
def test_what_another_computes_of_packed_chunks_is_what_our_kernel_does(shape, window, soft_cap, has_room):
    world = World(shape, window, soft_cap, flash_attn_varlen_func)
    with_flash, ours = world.paged(world.flash), world.paged()
    num_tokens = _num_tokens(SPANS)
    room = PackedShape(num_tokens + 70, 7) if has_room else PackedShape.of(_rows(SPANS))
    room = replace(room, lists_chunks=with_flash.wants_chunks)
    inputs = _load(PackedInputs.on(DEVICE, room), SPANS)
    qkv = world.qkv(room.num_tokens)
    got = with_flash.attend_packed(world.layer, qkv, inputs.tiles, world.chunks(inputs))
    expected = ours.attend_packed(world.layer, qkv, inputs.tiles, None)
    assert got.shape == expected.shape == (room.num_tokens, shape.query_width)
    _close(got[:num_tokens], expected[:num_tokens])
    assert with_flash.name == "triton decode, flash-attn-4 prefill"
    assert ours.name == "triton"


def test_a_kind_of_layer_that_another_gets_wrong_is_our_kernels():
    def without_windows(*tensors, window_size, **options):
        return flash_attn_varlen_func(*tensors, window_size=(None, None), **options)

    world = World(SHAPES[0], window=37)
    paged = world.paged(FlashPrefill(without_windows, world.shape, world.layout, DEVICE))
    room = PackedShape.of(_rows(SPANS), lists_chunks=paged.wants_chunks)
    inputs = _load(PackedInputs.on(DEVICE, room), SPANS)
    qkv = world.qkv(room.num_tokens)
    got = paged.attend_packed(world.layer, qkv, inputs.tiles, world.chunks(inputs))
    assert paged.name == "triton"
    assert torch.equal(got, world.paged().attend_packed(world.layer, qkv, inputs.tiles, None))


def test_chunks_are_listed_behind_all_else_and_only_where_they_are_wanted():
    rows = [ScheduledRow(3, 100, 5, samples=True), ScheduledRow(1, 0, 40, samples=False)]
    plain, listing = PackedShape(64, 4, 2), PackedShape(64, 4, 2, lists_chunks=True)
    without, buffer = (shape.pack(rows, 9) for shape in (plain, listing))
    assert np.array_equal(buffer[: len(without)], without)
    assert len(without) == plain.size == PackedInputs.on(DEVICE, plain).buffer.numel()
    assert len(buffer) == listing.size == PackedInputs.on(DEVICE, listing).buffer.numel()
    assert PackedInputs.on(DEVICE, plain).chunks is None
    chunk_rows, ends, num_keys = (buffer[start : start + length].tolist() for start, length in listing.sections()[6:])
    assert all(start % 64 == 0 for start, _ in listing.sections())
    assert chunk_rows == [3, 1, 9, 9]
    assert ends == [0, 5, 45, 45, 45]
    assert num_keys == [105, 40, 0, 0]


def test_a_pass_of_no_chunks_lists_empty_ones():
    buffer = PackedShape(64, 3, lists_chunks=True).pack((), 9)
    sections = PackedShape(64, 3, lists_chunks=True).sections()[6:]
    assert [buffer[start : start + length].tolist() for start, length in sections] == [[9] * 3, [0] * 4, [0] * 3]


@torch.inference_mode()
@pytest.mark.parametrize("name", ["cuda_qwen3", "gemma2"])
def test_models_whose_prefills_another_computes_give_transformers_logits(name):
    """Fused, and as Transformers defines them, with windows and capped scores."""
    prompts, model = random_prompts(), tiny_model_for_pages(name)
    expected = transformers_logits(name, prompts)
    parts, rows = model_parts(model), DeviceRows(model.config, prompts)
    if isinstance(parts, ModelParts):
        on_device = DeviceModel(model, parts, rows.pool, MAX_LEN)
    else:
        on_device = UnfusedModel(model, rows.pool, model.config.num_attention_heads, MAX_LEN)
    flash = FlashPrefill(flash_attn_varlen_func, on_device.shape, rows.pool.layout, DEVICE, is_required=True)
    rows.check(on_device, expected, flash)
    assert flash.is_used


# Each is compiled, which takes seconds.
KINDS_OF_FLASH = [
    *[(shape, None, 0.0, torch.bfloat16) for shape in SHAPES],
    *[(SHAPES[2], window, soft_cap, torch.bfloat16) for window, soft_cap in KINDS[1:]],
    (SHAPES[1], 37, 0.0, torch.bfloat16),
    (SHAPES[3], 37, 20.0, torch.bfloat16),
    (SHAPES[2], None, 0.0, torch.float16),
]


@needs_flash
@pytest.mark.parametrize(("shape", "window", "soft_cap", "dtype"), KINDS_OF_FLASH)
def test_flash_attention_equals_its_reference(shape, window, soft_cap, dtype):
    world = World(shape, window, soft_cap, _flash(), dtype)
    assert world.flash.takes(world.layer)
    for spans, room in ((SPANS, 512), (OTHER_SPANS, 128)):
        inputs = _load(PackedInputs.on(DEVICE, PackedShape(room, 32, lists_chunks=True)), spans)
        qkv, chunks = world.qkv(room), world.chunks(inputs)
        expected = FlashPrefill(flash_attn_varlen_func, shape, world.layout, DEVICE)(world.layer, qkv, chunks)
        got = world.flash(world.layer, qkv, chunks)
        _close(got[: _num_tokens(spans)], expected[: _num_tokens(spans)])


@needs_flash
def test_a_replayed_graph_gives_what_flash_attention_launched_by_itself_does():
    world = World(SHAPES[2], attend=_flash())
    paged = world.paged(world.flash)
    inputs = PackedInputs.on(DEVICE, PackedShape(512, 32, lists_chunks=True))
    qkv = world.qkv(512)

    def run() -> torch.Tensor:
        return paged.attend_packed(world.layer, qkv, inputs.tiles, world.chunks(inputs))

    _load(inputs, ())
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for spans in (SPANS, OTHER_SPANS, (), SPANS):
        qkv.copy_(world.qkv(512))
        _load(inputs, spans)
        graph.replay()
        num_tokens = _num_tokens(spans)
        assert torch.equal(captured[:num_tokens], run()[:num_tokens])


OPTIONS = {"device": "cuda", "kv_bytes": 64 << 20, "max_model_len": 512, "max_rows": 32}
NUM_NEW = 24


def _prompts() -> dict[str, list[int]]:
    rng = random.Random(5)
    return {f"t{i}": [rng.randrange(3, VOCAB) for _ in range(rng.choice((3, 40, 90, 300, 450)))] for i in range(12)}


def _generate(folder, attention: str, dtype: str = "bf16") -> tuple[dict[str, list[int]], str]:
    with loaded(folder, dtype=dtype, attention=attention, **OPTIONS) as model:
        engine = local_engine(model, max_step_tokens=512)
        for turn_id, prompt in _prompts().items():
            engine.submit(turn_id, prompt, temperature=0, max_tokens=NUM_NEW, ignore_eos=True)
        engine.run()
        return {turn_id: engine.tokens(turn_id) for turn_id in _prompts()}, model.attention_backend


@torch.inference_mode()
def _check_near_ties(folder, tokens: dict[str, list[int]], others: dict[str, list[int]]) -> None:
    """Not every turn parts; where one does, the model in float32 rates both tokens nearly alike."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").to(DEVICE)
    num_parted = 0
    for turn_id, prompt in _prompts().items():
        one, other = tokens[turn_id], others[turn_id]
        if one == other:
            continue
        num_parted += 1
        at = next(index for index in range(NUM_NEW) if one[index] != other[index])
        logits = model(torch.tensor([prompt + one[:at]], device=DEVICE)).logits[0, -1]
        assert (logits[one[at]] - logits[other[at]]).abs() <= 0.1 * logits.std(), (turn_id, at)
    assert num_parted < len(tokens)


@needs_flash
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["cuda_llama", "gemma2", "gemma3"])
def test_greedy_tokens_are_those_of_our_kernel_but_for_near_ties(name, tmp_path):
    folder = save_tiny_model(name, tmp_path / name)
    expected, ours = _generate(folder, "triton")
    got, with_flash = _generate(folder, "flash")
    assert (ours, with_flash) == ("triton", "triton decode, flash-attn-4 prefill")
    _check_near_ties(folder, expected, got)


@needs_flash
@pytest.mark.timeout(400)
def test_what_stands_for_tokens_of_no_chunk_reaches_nobody(tmp_path, monkeypatch):
    """Nor where it is not finite: it goes on through the layers, and into the spare row's block."""
    folder = save_tiny_model("cuda_qwen3", tmp_path / "cuda_qwen3")
    expected, _ = _generate(folder, "flash")
    flash = _flash()

    def poisoned(query, *tensors, cu_seqlens_q, **options):
        attended, _ = flash(query, *tensors, cu_seqlens_q=cu_seqlens_q, **options)
        is_nobodys = torch.arange(query.shape[0], device=DEVICE) >= cu_seqlens_q[-1]
        return attended.masked_fill(is_nobodys[:, None, None], float("nan")), None

    monkeypatch.setattr(flash_prefill, "find_flash", lambda *_: poisoned)
    _check_near_ties(folder, expected, _generate(folder, "flash")[0])


@needs_flash
def test_it_is_what_a_start_without_the_option_uses_and_fp32_does_not(tmp_path):
    folder = save_tiny_model("cuda_llama", tmp_path / "cuda_llama")
    assert _generate(folder, "auto")[1] == "triton decode, flash-attn-4 prefill"
    assert _generate(folder, "auto", dtype="fp32")[1] == "triton"


def _flash():
    found = flash_prefill.find_flash(KVLayout(1, 1, 64, BLOCK, torch.bfloat16), torch.cuda.get_device_capability())
    assert not isinstance(found, flash_prefill.Unavailable), found
    return found
