"""Every way that chance may decide, each with its probability as a fraction."""

from fractions import Fraction
from itertools import combinations, permutations, product
from math import comb, factorial, prod

import numpy as np


class Undecided(Exception):
    """The script has come to its end; the argument is what it may go on with."""


class Scripted:
    """A source of chance that decides as it is told."""

    def __init__(self, script):
        self._script = script
        self._next = 0

    def permutation(self, count):
        each = Fraction(1, factorial(count))
        return self._decided((order, each) for order in permutations(range(count)))

    def subset(self, count, size):
        each = Fraction(1, comb(count, size))
        return self._decided((chosen, each) for chosen in combinations(range(count), size))

    def each_with_probability(self, count, numerator, denominator):
        p = Fraction(numerator, denominator)
        return self._decided(
            (chosen, p**size * (1 - p) ** (count - size))
            for size in range(count + 1)
            for chosen in combinations(range(count), size)
        )

    def each_to_a_position(self, count, places, numerator, denominator):
        return self._decided(_picks(count, places, Fraction(numerator, denominator)))

    def _decided(self, choices):
        if self._next == len(self._script):
            raise Undecided([(value, p) for value, p in choices if p > 0])
        value, _ = self._script[self._next]
        self._next += 1
        return np.array(value, dtype=np.intp)


def _picks(count, places, p):
    chances = dict.fromkeys(range(places), p) | {-1: 1 - places * p}
    for picked in product(chances, repeat=count):
        yield picked, prod(map(chances.get, picked))


def outcomes(draw):
    """(what `draw` makes of a source of chance, the probability) for every way to decide."""
    open_scripts = [((), Fraction(1))]
    while open_scripts:
        script, probability = open_scripts.pop()
        try:
            result = draw(Scripted(script))
        except Undecided as undecided:
            (choices,) = undecided.args
            open_scripts += [((*script, one), probability * one[1]) for one in choices]
        else:
            yield result, probability
