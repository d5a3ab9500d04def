"""What a GGUF file says of positions and Transformers' reader leaves out: scaled rotary embeddings and windows.

Names of keys and tensors: the GGUF specification and llama.cpp's converter (2026-11). Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from gguf import GGUFReader

_FREQS, _LONG, _SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"


class Metadata:
    """Values of a file's keys, without the architecture that they begin with, and its rotary tensors."""

    def __init__(self, reader: GGUFReader) -> None:
        field = reader.get_field("general.architecture")
        self._prefix = f"{field.contents()}." if field is not None else ""
        self._reader = reader
        self._factors = {
            tensor.name: np.asarray(tensor.data, np.float32).reshape(-1).tolist()
            for tensor in reader.tensors
            if tensor.name in (_FREQS, _LONG, _SHORT)
        }

    def get(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(self._prefix + key)
        return default if field is None else field.contents()

    @property
    def num_biases(self) -> int:
        return sum(tensor.name.endswith(".bias") for tensor in self._reader.tensors)

    @property
    def sliding_window(self) -> int | None:
        window = self.get("attention.sliding_window")
        return window if isinstance(window, int) and window > 0 else None

    @property
    def num_rotated(self) -> int | None:
        """Dimensions of a head that are rotated; the others tell no position."""
        count = self.get("rope.dimension_count")
        return count if isinstance(count, int) and count > 0 else None

    def rope_scaling(self) -> Mapping[str, Any]:
        """As Transformers' rope_parameters have it; empty where nothing is scaled. Raises ValueError for a kind that is
        not known here."""
        context = self.get("context_length")
        original = self.get("rope.scaling.original_context_length", context)
        if _LONG in self._factors and _SHORT in self._factors:
            return {
                "rope_type": "longrope", "long_factor": self._factors[_LONG], "short_factor": self._factors[_SHORT],
                "original_max_position_embeddings": original, "factor": context / original, **self._attention_factor(),
            }  # fmt: skip
        factors = self._factors.get(_FREQS, [])
        if any(factor != 1 for factor in factors):
            # What Llama 3 scales by, a number for each pair of dimensions: factors that are the same at any length.
            return {
                "rope_type": "longrope", "long_factor": factors, "short_factor": factors,
                "original_max_position_embeddings": context, "factor": 1.0, "attention_factor": 1.0,
            }  # fmt: skip
        return self._scaling_by_a_factor(original)

    def _scaling_by_a_factor(self, original: int) -> Mapping[str, Any]:
        kind = self.get("rope.scaling.type", "linear")
        factor = float(self.get("rope.scaling.factor", self.get("rope.scale_linear", 1.0)))
        if kind == "none" or factor in (0.0, 1.0):
            return {}
        if kind == "linear":
            return {"rope_type": "linear", "factor": factor}
        if kind != "yarn":
            raise ValueError(f"its rotary embeddings are scaled in a way that is not known here, {kind!r}")
        scaling = {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": original}
        for name in ("beta_fast", "beta_slow"):
            beta = self.get(f"rope.scaling.yarn_{name}")
            if beta is not None:
                scaling[name] = float(beta)
        own = self._attention_factor()
        if own:
            scaling["attention_factor"] = own["attention_factor"] * (1 + 0.1 * math.log(factor))
        return scaling

    def _attention_factor(self) -> dict[str, float]:
        factor = self.get("rope.scaling.attn_factor")
        return {} if factor is None else {"attention_factor": float(factor)}
