"""What the errata page names, and laws behind it; its demonstrations are doctests."""

import math
import re
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import mpmath
import pytest

from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.reproduce.coverage import (
    chien_li_3_12_one_step,
    larger_direction,
    smaller_direction,
)

PAGE = Path(__file__).parents[2] / "docs" / "errata.md"


def test_every_id_exists():
    ids = re.findall(r"published/[a-z-]+/[a-z-]+", PAGE.read_text())
    assert ids
    assert set(ids) <= set(CATALOGUE)


@pytest.mark.parametrize("name", ["altschuler_talwar_3_6", "chien_li_3_12", "footnote_4"])
def test_false_forms_are_nowhere_but_under_reproduce(name):
    source = PAGE.parent.parent / "src" / "lastiterate"
    holders = {
        path.parent.name
        for path in source.rglob("*.py")
        if re.search(rf"def \w*{name}", path.read_text())
    }
    assert holders == {"reproduce"}


class TestOneStepOfChienAndLi:
    """The law of the step from all batches, in 30 digits, without any formula of the page."""

    @staticmethod
    def law(others, own, batch):
        """The mean of the step for each batch, with its probability; 2 eta K/(b sigma) is 1."""
        gradients = [own, *[others] * (10 * batch - 1)]
        batches = list(combinations(gradients, batch))
        return {
            mean: mpmath.mpf(times) / len(batches)
            for mean, times in Counter(-sum(one) / batch for one in batches).items()
        }

    @staticmethod
    def divergence(order, one, other, noise):
        def density(law, x):
            return mpmath.fsum(p * mpmath.npdf(x, mean, noise) for mean, p in law.items())

        def integrand(x):
            return density(one, x) ** order * density(other, x) ** (1 - order)

        return mpmath.log(mpmath.quad(integrand, range(-80, 81, 8))) / (order - 1)

    @pytest.mark.parametrize("batch", [1, 2])
    @pytest.mark.parametrize("order, others, true", [
        (2, 1, 0.0170), (8, 1, 1.3784), (2, 0, 0.0098), (8, 0, 0.0411)
    ])  # fmt: skip
    def test_true_divergence(self, order, others, true, batch):
        one, other = (self.law(others, own, batch) for own in (1, -1))
        noise = mpmath.mpf(2) / batch
        found = max(
            self.divergence(order, one, other, noise), self.divergence(order, other, one, noise)
        )
        assert round(float(found), 4) == true
        printed = chien_li_3_12_one_step(order, q=0.1, shift=1.0)
        assert (found > printed) == (others == 1 or order == 8)


def test_lemma_2_12_covers_the_larger_direction():
    """Altschuler and Talwar's range: q < 1/5, noise at least 4, orders up to alpha*."""
    for q, noise in product((1e-3, 0.02, 0.1, 0.19), (4.0, 8.0, 20.0)):
        for order in (1.1, 2.0, 5.0, 20.0):
            log = math.log1p(1 / (q * (order - 1)))
            below = log + math.log(q * order) + 1 / (2 * noise**2)
            far = (log**2 * noise**2 / 2 - math.log(5 * noise**2)) / below
            if order > log * noise**2 / 2 - math.log(noise**2) or order > far:
                continue
            larger = larger_direction(order, q, noise)
            if larger > 1e-6:  # or rounding counts
                assert larger <= 2 * order * q**2 / noise**2
                assert smaller_direction(order, q, noise) >= 0.93 * larger
