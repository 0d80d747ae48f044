r"""A linear layer on rows of bounded norm, and bounds that follow from the architecture.

The outputs of a LayerNorm are :math:`\gamma z + \beta` with :math:`|z|^2 \le d`, so that no row is
longer than :math:`\sqrt d \max|\gamma| + |\beta|`; those of tanh are within :math:`\sqrt d`, and
those of fixed features within the bound that their map states.
Whether such a layer feeds the head is seen from the memory that the head reads: it must be the
layer's own output, to which no other layer has written since.  Torch counts writes, so that this
is seen whatever the numbers are.
"""

from __future__ import annotations

import math
from hashlib import sha256
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lastiterate import _check
from lastiterate._numerics.rounding import ulps_of, up
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.torch.feature_layer import FeatureLayer


class BoundedLinear(nn.Linear):
    """`torch.nn.Linear` on rows that are scaled down to `bound` where they are longer.

    The keys of its state are those of `nn.Linear`: bounds are settings, not weights.

    Parameters
    ----------
    in_features, out_features : int
        The number of inputs and outputs.
    bias : bool
        Whether the layer has a bias.
    bound : float
        The norm that longer rows are scaled down to.
    center : torch.Tensor, optional
        A point; rows are then moved within `center_bound` of it.
    center_bound : float, optional
        The largest distance from `center`; needed with it.
    normalise : bool
        Whether to scale every row to length 1 first.

    Raises
    ------
    InvalidParameter
        If a bound is not positive.

    Examples
    --------
    >>> layer = BoundedLinear(2, 1, bias=False, bound=1.0)
    >>> _ = layer.load_state_dict({"weight": torch.tensor([[1.0, 0.0]])})
    >>> layer(torch.tensor([[3.0, 4.0], [0.3, 0.4]])).tolist()
    [[0.6000000238418579], [0.30000001192092896]]
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        bound: float = 1.0,
        center: torch.Tensor | None = None,
        center_bound: float | None = None,
        normalise: bool = False,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        self.bound = _check.number("bound", bound, above=0.0)
        self.normalise = bool(normalise)
        around = None if center is None else center.detach().to(torch.float64)
        self.register_buffer("center", around, persistent=False)
        limit = None if center is None else _check.number("center_bound", center_bound, above=0.0)
        self.center_bound = limit

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The outputs, computed in float64 (where the device has it) as the estimator does."""
        kind = torch.float32 if rows.device.type == "mps" else torch.float64
        within = bounded(rows.to(kind), self.bound, normalise=self.normalise)
        if self.center is not None:
            center = self.center.to(within)
            away = within - center
            length = away.norm(dim=-1, keepdim=True)
            within = center + away * (self.center_bound / length.clamp(min=self.center_bound))
        bias = None if self.bias is None else self.bias.to(kind)
        return functional.linear(within, self.weight.to(kind), bias).to(self.weight.dtype)

    def extra_repr(self) -> str:
        """The usual text, with the bound added."""
        more = ", normalise=True" if self.normalise else ""
        return f"{super().extra_repr()}, bound={self.bound:g}{more}"


def bounded(rows: torch.Tensor, bound: float, *, normalise: bool) -> torch.Tensor:
    """Rows of norm at most `bound`, or of norm 1 (0 stays 0)."""
    length = rows.norm(dim=-1, keepdim=True)
    if normalise:
        rows = rows / length.clamp(min=torch.finfo(rows.dtype).tiny)
        length = rows.norm(dim=-1, keepdim=True)
    return rows * (bound / length.clamp(min=bound))


def head_digest(layer: nn.Linear) -> str:
    """The SHA-256 digest of the float32 weights, which ties a certificate to a layer."""
    text = sha256()
    for one in (layer.weight, layer.bias):
        if one is not None:
            array = one.detach().to("cpu", torch.float32).contiguous().numpy().astype("<f4")
            text.update(repr(array.shape).encode() + array.tobytes())
    return text.hexdigest()


def linear_layer(model: nn.Module, name: str) -> nn.Linear:
    """The layer of this name; raises `InvalidType` if it is not linear."""
    found = dict(model.named_modules()).get(name)
    if not isinstance(found, nn.Linear):
        linear = [one for one, layer in model.named_modules() if isinstance(layer, nn.Linear)]
        must_be = f"the name of a torch.nn.Linear in the model: one of {linear}"
        raise InvalidType("name", name, must_be=must_be)
    return found


def replace_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Replace the layer of this name by `layer`."""
    parent, _, own = name.rpartition(".")
    setattr(model.get_submodule(parent), own, layer)


FEATURES = "features"
_KINDS: dict[str, type[nn.Module]] = {
    "layernorm": nn.LayerNorm,
    "tanh": nn.Tanh,
    FEATURES: FeatureLayer,
}
NAMED_BOUNDS = (*_KINDS, "normalise")


class BoundingLayer:
    """The last layer of a kind that ran in a model, and its output."""

    def __init__(self, model: nn.Module, word: str) -> None:
        self._word = word
        self._last: tuple[nn.Module, torch.Tensor, int] | None = None
        self._feeding: nn.Module | None = None
        layers = [one for one in model.modules() if isinstance(one, _KINDS[word])]
        self._handles = [one.register_forward_hook(self._record_output) for one in layers]

    def _record_output(self, layer: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self._last = layer, output, write_count(output)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()

    def check(self, rows: torch.Tensor) -> None:
        """Raise `InvalidParameter` for rows that are not outputs of such a layer."""
        if not self._feeds(rows):
            must_be = (
                f"a number: the inputs of the head are not the outputs of a {self._word}, so no "
                "bound follows from the architecture"
            )
            raise InvalidParameter("feature_bound", self._word, must_be=must_be)

    def _feeds(self, rows: torch.Tensor) -> bool:
        """Whether rows are as such a layer wrote them, the same one for all batches."""
        if self._last is None:
            return False
        layer, output, writes = self._last
        if self._feeding is None:
            self._feeding = layer
        unchanged = write_count(output) == writes
        return layer is self._feeding and unchanged and _are_rows_of(rows, output)

    def bound(self, width: int) -> float:
        """The bound on the norm of every row."""
        assert self._last is not None
        layer = self._last[0]
        if isinstance(layer, FeatureLayer):
            return layer.norm_bound
        # A row may be a part of what a LayerNorm over several axes normalises.
        count = math.prod(layer.normalized_shape) if isinstance(layer, nn.LayerNorm) else width
        root = math.sqrt(count)
        if isinstance(layer, nn.LayerNorm) and layer.weight is not None:
            root *= float(layer.weight.detach().abs().max())
            if layer.bias is not None:
                root += float(layer.bias.detach().double().norm())
        return up(root, ulps_of("float32", count + 8))

    def feature_maps(self) -> list[dict[str, Any]]:
        """The record of the fixed features that the layer computes, if it does."""
        layer = None if self._last is None else self._last[0]
        return [layer.map_record()] if isinstance(layer, FeatureLayer) else []


def write_count(tensor: torch.Tensor) -> int:
    """How often the memory was written to in place; 0 in inference mode, where none is counted."""
    return 0 if tensor.is_inference() else tensor._version


def _are_rows_of(rows: torch.Tensor, output: torch.Tensor) -> bool:
    """Whether rows are vectors of the layer's output: in the same memory, and of equal width."""
    return (
        rows.untyped_storage().data_ptr() == output.untyped_storage().data_ptr()
        and rows.shape[-1] == output.shape[-1]
        and rows.stride(-1) == output.stride(-1) == 1
        and rows.storage_offset() % output.shape[-1] == output.storage_offset() % output.shape[-1]
        and all(step % output.shape[-1] == 0 for step in rows.stride()[:-1])
        and output.is_contiguous()
    )
