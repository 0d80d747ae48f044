"""What the page on arithmetic says, and what the library computes."""

import inspect
import re

from lastiterate.train.arithmetic import EXPONENT
from lastiterate.train.noise import BITS, TOTAL_VARIATION
from lastiterate.train.objectives import ELEMENTARY
from tests.train.test_arithmetic import TestCosts

from .claims import claim

PAGE = "docs/arithmetic.md"


def limit_of(test):
    """The most that a test of what rounding adds to epsilon allows."""
    return float(re.findall(r"<= ([\de.-]+)", inspect.getsource(test))[0])


@claim(PAGE, r"\| Adult, default, epsilon 1 \| below ([\de-]+) \|")
def adult(most):
    assert limit_of(TestCosts.test_adult) == float(most)


@claim(PAGE, r"\| MNIST, default, epsilon 1 \| below ([\de-]+) \|")
def mnist(most):
    assert limit_of(TestCosts.test_mnist) == float(most)


@claim(PAGE, r"\| a million rows, 100,000 Poisson batches \| below ([\de-]+) \|")
def million(most):
    assert limit_of(TestCosts.test_a_million_rows) == float(most)


@claim(PAGE, r"\| a head of 2,048 features and 1,000 classes \| below ([\de-]+) \|")
def head(most):
    assert limit_of(TestCosts.test_a_large_head) == float(most)


@claim(PAGE, r"leaves out is below ([\de-]+) in all of them")
def failure(most):
    assert f"found.failure < {most}" in inspect.getsource(TestCosts)


@claim(PAGE, r"one draw is within ([\de.-]+) of the ideal law")
def draws(most):
    assert float(most) >= TOTAL_VARIATION


@claim(PAGE, r"a grid 2\^-(\d+) as fine as the noise")
def grid(bits):
    assert int(bits) == BITS


@claim(PAGE, r"a probability of e\^-(\d+) a step")
def reach(exponent):
    assert float(exponent) == EXPONENT


@claim(PAGE, r"Exponentials and logarithms right to 2\^-(\d+)")
def elementary(bits):
    assert 2.0 ** -int(bits) == ELEMENTARY


@claim(PAGE, r"On MNIST it adds less than ([\de-]+) to an epsilon of 1")
def first_sentence(most):
    mnist(most)


@claim("docs/faq.md", r"it adds less than ([\de-]+) to an epsilon of 1 on MNIST")
def of_the_questions(most):
    mnist(most)
