"""Layers that bound rows or map them, and noise that leaves no bits of what it was added to."""

from fractions import Fraction

import numpy as np
import pytest
import torch

import lastiterate as li
import lastiterate.torch as lt
from lastiterate.errors import InvalidType
from lastiterate.torch import layers as secure_noise
from lastiterate.train.noise import Randomness, SeededBits, release_bits


class TestSecureNoise:
    def test_is_normal_and_never_the_same(self):
        zeros = torch.zeros(50, 40)
        one, other = (lt.add_secure_noise(zeros, 2.0, bound=1.0) for _ in range(2))
        assert not torch.equal(one, other)
        assert one.dtype is torch.float32
        assert abs(float(one.mean())) < 0.3
        assert 1.9 < float(one.std()) < 2.1

    def test_is_added_to_what_is_within_the_bound(self):
        values = torch.tensor([3.0, -1e30, float("nan"), 0.5], dtype=torch.float64)
        found = lt.add_secure_noise(values, 1e-6, bound=1.0)
        expected = torch.tensor([1.0, -1.0, 0.0, 0.5], dtype=torch.float64)
        assert torch.allclose(found, expected, atol=1e-4)

    def test_leaves_no_bits_of_what_it_was_added_to(self):
        """Where float32 noise added to float32 numbers is told apart with certainty."""
        moved, std = torch.tensor(2.0**-9), 0.9

        def zeros(x):
            near = x[(x.abs() < moved / 2) & (x != 0)].numpy()
            wanted = np.frexp(float(moved))[1] - np.frexp(near)[1] - 1
            near, wanted = near[wanted > 0], wanted[wanted > 0]
            bits = np.abs(near).view(np.int32).astype(np.int64) & ((1 << 23) - 1)
            found = np.where(bits == 0, 23, np.frexp((bits & -bits).astype(float))[1] - 1)
            return float((found >= wanted).mean())

        raw, safe = [], []
        for shift in (0.0, float(moved)):
            start = torch.full((200_000,), shift)
            raw.append(zeros(start + std * torch.randn(200_000)))
            safe.append(zeros(lt.add_secure_noise(start, std, bound=1.0)))
        assert raw[1] == 1.0 > raw[0] + 0.05
        assert abs(safe[1] - safe[0]) < 0.2

    @pytest.mark.parametrize("bound", [1.0, 1e4, 1e9])
    def test_moves_values_by_no_more_than_it_says(self, bound, monkeypatch):
        std = 0.3
        values = torch.linspace(-bound, bound, 999, dtype=torch.float64)
        monkeypatch.setattr(secure_noise, "Randomness", lambda: Randomness(SeededBits(0)))
        bits = release_bits(std, bound)
        unit, noise = std * 2.0**-bits, Randomness(SeededBits(0)).rounded_normals((999,), bits)
        found = lt.add_secure_noise(values, std, bound=bound).numpy()
        # Exactly: floats would round what is to be seen.
        whole = [
            round(Fraction(x) / Fraction(unit)) - int(k) for x, k in zip(found, noise, strict=True)
        ]
        moved = [
            abs(k * Fraction(unit) - Fraction(x))
            for k, x in zip(whole, values.tolist(), strict=True)
        ]
        # What is handed out is a float, half a last bit from the grid.
        printed = Fraction(2.0**-53 * float(np.abs(found).max()))
        assert max(moved) <= Fraction(std) / 2**40 + Fraction(bound) / 2**52 + printed

    def test_refusals(self):
        for wrong in (
            {"std": float("nan")},
            {"std": 0.0},
            {"bound": -1.0},
            {"bound": 1e300},
            {"std": 1e-300},
        ):
            with pytest.raises(li.InvalidParameter):
                lt.add_secure_noise(torch.zeros(3), **{"std": 1.0, "bound": 1.0} | wrong)
        with pytest.raises(InvalidType, match="a tensor of floats"):
            lt.add_secure_noise(torch.zeros(3, dtype=torch.int64), 1.0, bound=1.0)
