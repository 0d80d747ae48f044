"""Ticks are few and round, and read like numbers."""

from hypothesis import given
from hypothesis import strategies as st

from lastiterate.plot.style import number, ticks_of_logs


class TestTicks:
    @given(low=st.floats(1e-12, 1e9), decades=st.floats(0.8, 20.0))
    def test_are_few_round_and_inside(self, low, decades):
        high = low * 10.0**decades
        ticks = ticks_of_logs(low, high)
        assert 2 <= len(ticks) <= 8
        assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in ticks)

    def test_read_like_numbers(self):
        assert [number(x) for x in (0.05, 1.0, 1_000.0, 200_000.0)] == [
            "0.05", "1", "1,000", "200,000",
        ]  # fmt: skip
        assert number(1e-5) == "$10^{-5}$"
        assert number(2.5e7) == r"$2.5\times 10^{7}$"
