"""Who follows an engine's constrained rows: other processes, where a runner's masks can be written from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from inference.grammar.matcher import Matcher
from inference.grammars import Grammars
from inference.mask_ledger import MaskJob, MaskMaker
from inference.remote_matcher import RemoteMatcher
from inference.shared_masks import SharedMasks
from tests.testkit.grammar_kit import schema_source
from tests.testkit.remote_kit import SPECIAL_TOKENS, write_tokenizer


class _Runner:
    def __init__(self, shared_masks: SharedMasks | None) -> None:
        self.shared_masks = shared_masks
        self.maker: MaskMaker | None = None

    def leave_masks_to(self, maker: MaskMaker) -> None:
        self.maker = maker


class _Model:
    eos_token_ids = (SPECIAL_TOKENS["<end>"],)

    def __init__(self, vocab_size: int, *, is_shared: bool) -> None:
        self.vocab_size = vocab_size
        self.runner = _Runner(SharedMasks(3, vocab_size) if is_shared else None)


@pytest.mark.parametrize("is_shared", [True, False])
def test_rows_are_followed_by_processes_where_masks_are_shared(is_shared: bool, tmp_path: Path) -> None:
    model = _Model(write_tokenizer(tmp_path), is_shared=is_shared)
    grammars = Grammars(tmp_path, cast(Any, model), num_processes=1)
    matcher = grammars.matcher(schema_source({"const": "rain"}))
    runner = model.runner
    if is_shared:
        assert isinstance(matcher, RemoteMatcher)
        assert runner.maker is not None
        assert runner.shared_masks is not None
        runner.maker.post([MaskJob(0, 1, 1, matcher)])
        while not matcher.has_mask:
            pass
        words = runner.shared_masks.words[0]
    else:
        assert isinstance(matcher, Matcher)
        assert runner.maker is None
        words = np.zeros(-(-model.vocab_size // 32), np.int32)
        assert matcher.mask(words)
    assert int(np.unpackbits(words.view(np.uint8)).sum()) == 1
    assert matcher.forced() != ()
    del matcher
    grammars.close()
