r"""Bounds on features that follow from the architecture, whatever the example.

The outputs of a LayerNorm are :math:`\gamma z + \beta` with :math:`|z|^2 \le d`, so that no row is
longer than :math:`\sqrt d \max|\gamma| + |\beta|`; those of tanh are within :math:`\sqrt d`.  That
the head is fed by such a layer is seen from the memory that it reads: the layer's own outputs.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from lastiterate._numerics.rounding import ulps_of, up
from lastiterate.errors import InvalidParameter

_KINDS: dict[str, type[nn.Module]] = {"layernorm": nn.LayerNorm, "tanh": nn.Tanh}
WORDS = (*_KINDS, "normalise")


class FedBy:
    """Notes, while a model runs, the last layer of a kind, and what it gave."""

    def __init__(self, model: nn.Module, word: str) -> None:
        self._word = word
        self._last: tuple[nn.Module, torch.Tensor] | None = None
        layers = [one for one in model.modules() if isinstance(one, _KINDS[word])]
        self._handles = [one.register_forward_hook(self._note) for one in layers]

    def _note(self, layer: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self._last = layer, output

    def close(self) -> None:
        """Note no more."""
        for handle in self._handles:
            handle.remove()

    def check(self, rows: torch.Tensor) -> None:
        """Refuse rows that are not what such a layer gave."""
        if self._last is None or not _are_rows_of(rows, self._last[1]):
            must_be = (
                f"a number: the head is not fed by the outputs of a {self._word} as they are, so "
                "that no bound follows from the architecture"
            )
            raise InvalidParameter("feature_bound", self._word, must_be=must_be)

    def bound(self, width: int) -> float:
        """On the norm of every row."""
        assert self._last is not None
        layer = self._last[0]
        root = math.sqrt(width)
        if isinstance(layer, nn.LayerNorm) and layer.weight is not None:
            root *= float(layer.weight.detach().abs().max())
            if layer.bias is not None:
                root += float(layer.bias.detach().double().norm())
        return up(root, ulps_of("float32", width + 8))


def _are_rows_of(rows: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether each row is one of the layer's vectors: in the same memory, and as long."""
    return (
        rows.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
        and rows.shape[-1] == output.shape[-1]
        and rows.stride(-1) == output.stride(-1) == 1
        and rows.storage_offset() % output.shape[-1] == output.storage_offset() % output.shape[-1]
        and all(step % output.shape[-1] == 0 for step in rows.stride()[:-1])
        and output.is_contiguous()
    )
