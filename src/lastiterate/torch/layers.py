r"""Layers of bounded outputs, bounds that follow from the architecture, and secure noise.

The outputs of a LayerNorm are :math:`\gamma z + \beta` with :math:`|z|^2 \le d`, so that no row is
longer than :math:`\sqrt d \max|\gamma| + |\beta|`; those of tanh are within :math:`\sqrt d`, and
those of fixed features within the bound that their map states.
Whether such a layer feeds the head is seen from the memory that the head reads: it must be the
layer's own output, to which no other layer has written since.  Torch counts writes, so that this
is seen whatever the numbers are.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from lastiterate import _check
from lastiterate._numerics.rounding import ulps_of, up
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.saved_model.weight_files import LayerNumbers
from lastiterate.train.noise import Randomness, noisy

FEATURES = "features"
_STDS = 1e-250, 1e250  # so that no unit is subnormal, and no value overflows
_LARGEST_BOUND = 2.0**50  # standard deviations


class FeatureLayer(nn.Module):
    """A torch layer that applies a transformer of `lastiterate.features`.

    Rows of several axes are flattened first, so torch's images come colour by colour, as
    `Scattering2D` expects them by default.  The layer has no weights.  `fit_head` takes the bound
    of a head right behind it from the transformer, and the certificate names the transformer.

    Parameters
    ----------
    transformer : FixedFeatures
        Such as `Scattering2D((28, 28), pixel_max=255)` for bytes; needs the extra `sklearn`.

    Raises
    ------
    InvalidType
        If it is another transformer, which may learn from the examples.

    Examples
    --------
    >>> import torch
    >>> import lastiterate.torch as lt
    >>> from lastiterate.features import Scattering2D
    >>> layer = lt.FeatureLayer(Scattering2D((8, 8), scales=1))
    >>> model = torch.nn.Sequential(layer, torch.nn.Linear(144, 10))
    >>> model(torch.rand(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(self, transformer: Any) -> None:
        from lastiterate.features.transformers import FixedFeatures

        super().__init__()
        if not isinstance(transformer, FixedFeatures):
            must_be = "a transformer of lastiterate.features"
            raise InvalidType("transformer", transformer, must_be=must_be)
        self.transformer = transformer

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The features of rows, as float32 on the same device."""
        flat = rows.detach().flatten(1).cpu()
        given = (flat if flat.is_complex() else flat.double()).numpy()
        return torch.from_numpy(self.transformer.fit(given).transform(given)).to(rows.device)

    def extra_repr(self) -> str:
        """The transformer."""
        return repr(self.transformer)

    @property
    def norm_bound(self) -> float:
        """The largest norm of a row of features."""
        return float(self.transformer.norm_bound)

    def map_record(self) -> dict[str, Any]:
        """The kind and parameters of the map that the last rows were given to.

        Returns
        -------
        dict
            As certificates have it.

        Examples
        --------
        >>> from lastiterate.features import QuadraticSketch
        >>> layer = FeatureLayer(QuadraticSketch(8))
        >>> _ = layer(torch.rand(2, 3))
        >>> layer.map_record()["columns"]
        3
        """
        record: dict[str, Any] = self.transformer.feature_map(
            self.transformer.n_features_in_
        ).as_record()
        return record


class BoundedLinear(nn.Linear):
    """`torch.nn.Linear` on rows that are scaled down to `bound` where they are longer.

    A row with nan or infinite entries is taken as a row of zeros, whatever the other rows are.

    Its state is that of `nn.Linear`, and one more tensor, `_extra_state`, with the bounds and the
    centre: an `nn.Linear`, whose outputs would be others, refuses to load it, and a BoundedLinear
    takes over all of it.

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
    >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, 0.0]]))
    >>> layer(torch.tensor([[3.0, 4.0], [0.3, 0.4]])).tolist()
    [[0.6000000238418579], [0.30000001192092896]]
    >>> torch.nn.Linear(2, 1, bias=False).load_state_dict(layer.state_dict())
    Traceback (most recent call last):
    RuntimeError: ... Unexpected key(s) in state_dict: "_extra_state".
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
        finite = torch.isfinite(rows).all(dim=-1, keepdim=True)
        known = torch.where(finite, rows.to(kind), 0.0)
        within = bounded(known, self.bound, normalise=self.normalise)
        if self.center is not None:
            center = self.center.to(within)
            away = within - center
            length = away.norm(dim=-1, keepdim=True)
            within = center + away * (self.center_bound / length.clamp(min=self.center_bound))
        bias = None if self.bias is None else self.bias.to(kind)
        return functional.linear(within, self.weight.to(kind), bias).to(self.weight.dtype)

    def get_extra_state(self) -> torch.Tensor:
        """The bounds and the centre, as one tensor, which every format of weights can hold.

        Returns
        -------
        torch.Tensor
            `bound`, `normalise`, `center_bound` (nan without), and the entries of `center`.

        Examples
        --------
        >>> BoundedLinear(2, 1, bound=3.0).get_extra_state().tolist()
        [3.0, 0.0, nan]
        """
        limit = math.nan if self.center_bound is None else self.center_bound
        center = [] if self.center is None else self.center.detach().cpu().double().tolist()
        stated = [self.bound, float(self.normalise), limit, *center]
        return torch.tensor(stated, dtype=torch.float64)

    def set_extra_state(self, state: Any) -> None:
        """Take over the bounds and the centre of a state.

        Parameters
        ----------
        state : torch.Tensor
            As `get_extra_state` gives it.

        Raises
        ------
        InvalidParameter
            If it is not the state of a layer of this width.

        Examples
        --------
        >>> layer = BoundedLinear(2, 1)
        >>> layer.set_extra_state(BoundedLinear(2, 1, bound=3.0).get_extra_state())
        >>> layer.bound
        3.0
        """
        found = torch.as_tensor(state).detach().cpu().double()
        if found.ndim != 1 or len(found) not in (3, 3 + self.in_features):
            must_be = f"3 numbers, or {3 + self.in_features} with a centre"
            raise InvalidParameter("state", must_be=must_be, found=f"shape {tuple(found.shape)}")
        bound, normalise, limit = found[:3].tolist()
        centred = len(found) > 3
        self.bound = _check.number("bound", bound, above=0.0)
        self.normalise = bool(normalise)
        self.center_bound = _check.number("center_bound", limit, above=0.0) if centred else None
        self.center = found[3:].to(self.weight.device) if centred else None

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


def layer_numbers(layer: BoundedLinear) -> LayerNumbers:
    """All that the outputs of the layer follow from."""
    bias = None if layer.bias is None else _array(layer.bias.float())
    center = None if layer.center is None else _array(layer.center)
    weight = _array(layer.weight.float())
    return LayerNumbers(weight, bias, layer.bound, center, layer.center_bound, layer.normalise)


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    if tensor.dtype == torch.bfloat16:  # which numpy does not have
        tensor = tensor.float()
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def linear_layer(model: nn.Module, name: str) -> nn.Linear:
    """The layer of this name; raises `InvalidType` if it is not linear."""
    found = dict(model.named_modules(remove_duplicate=False)).get(name)
    if not isinstance(found, nn.Linear):
        linear = [one for one, layer in model.named_modules() if isinstance(layer, nn.Linear)]
        must_be = f"the name of a torch.nn.Linear in the model: one of {linear}"
        raise InvalidType("name", name, must_be=must_be)
    return found


def replace_layer(model: nn.Module, name: str, layer: nn.Module) -> None:
    """Replace the layer of this name by `layer`, under all its names."""
    old = model.get_submodule(name)
    for parent in list(model.modules()):
        for own in [own for own, child in parent._modules.items() if child is old]:
            setattr(parent, own, layer)


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
        self._last: tuple[int, nn.Module, torch.Tensor, int] | None = None
        self._feeding: int | None = None
        layers = [one for one in model.modules() if isinstance(one, _KINDS[word])]
        # By number: a copy of the model has copies of its layers.
        self._handles = [
            one.register_forward_hook(partial(self._record_output, number))
            for number, one in enumerate(layers)
        ]

    def _record_output(self, number: int, layer: nn.Module, _: Any, output: Any) -> None:
        if isinstance(output, torch.Tensor):
            self._last = number, layer, output, write_count(output)

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
        """Whether one bounding layer wrote the rows of every batch, and they are unchanged."""
        if self._last is None:
            return False
        number, _, output, writes = self._last
        if self._feeding is None:
            self._feeding = number
        unchanged = write_count(output) == writes
        return number == self._feeding and unchanged and _are_rows_of(rows, output)

    def bound(self, width: int) -> float:
        """The bound on the norm of every row."""
        assert self._last is not None
        layer = self._last[1]
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
        layer = None if self._last is None else self._last[1]
        return [layer.map_record()] if isinstance(layer, FeatureLayer) else []


def write_count(tensor: torch.Tensor) -> int:
    """The number of writes to the memory in place; 0 in inference mode, which counts none."""
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


def add_secure_noise(values: torch.Tensor, std: float, *, bound: float) -> torch.Tensor:
    """The values with independent Gaussian noise, from AES-256 keyed by the operating system.

    Noise alone cannot be handed out safely: added to floats, it leaves bits that tell what it was
    added to.  So values are rounded to a grid 2^-40 as fine as the noise, and the floor of a
    Gaussian number on that grid is added, exactly.  (The grid is coarser where `bound` is more than
    2^21 times `std`.)  Rounding moves each value by at most 2^-40 of `std` and 2^-52 of `bound`,
    which your account of the noise should include.  The result is rounded to the type of the
    values, which is post-processing.

    Parameters
    ----------
    values : torch.Tensor
        Floating-point numbers.  They must be computed before the call; what rounds them is not
        accounted for.
    std : float
        The standard deviation.
    bound : float
        A publicly known bound on the absolute values; larger ones count as it.

    Returns
    -------
    torch.Tensor
        Of the same shape, type and device.

    Raises
    ------
    InvalidParameter
        If `std` is not in [1e-250, 1e250], or `bound` not in (0, 2^50 std].

    Examples
    --------
    >>> noisy_sum = add_secure_noise(torch.zeros(200, 100), std=3.0, bound=1.0)
    >>> noisy_sum.shape, 2.9 < float(noisy_sum.std()) < 3.1
    (torch.Size([200, 100]), True)
    """
    if not isinstance(values, torch.Tensor) or not values.is_floating_point():
        raise InvalidType("values", must_be="a tensor of floats", found=type(values).__name__)
    scale = _check.number("std", std, at_least=_STDS[0], at_most=_STDS[1])
    largest = _check.number("bound", bound, above=0.0, at_most=_LARGEST_BOUND * scale)
    known = values.detach().to(device="cpu", dtype=torch.float64).numpy()
    clipped = np.nan_to_num(np.clip(known, -largest, largest), nan=0.0)
    found = noisy(clipped, scale, Randomness(), largest=largest)
    return torch.from_numpy(found).to(device=values.device, dtype=values.dtype)
