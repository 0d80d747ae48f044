"""No name overlaps another, and each stays as near to its line as that allows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lastiterate.plot.labels import spread
from lastiterate.plot.style import number, ticks_of_logs

ENDS = st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(1.0, 20.0)), min_size=1, max_size=12)


def placed(ends, low=0.0, high=1_000.0):
    targets, heights = (np.array(values) for values in zip(*ends, strict=True))
    return targets, heights, spread(targets, heights, low, high)


class TestSpread:
    @given(ends=ENDS)
    def test_none_overlaps(self, ends):
        _, heights, centres = placed(ends)
        order = np.argsort(centres)
        gaps = np.diff(centres[order]) - (heights[order][1:] + heights[order][:-1]) / 2
        assert np.all(gaps >= -1e-9)

    @given(ends=ENDS)
    def test_the_order_is_kept(self, ends):
        targets, _, centres = placed(ends)
        order = np.argsort(targets, kind="stable")
        assert np.all(np.diff(centres[order]) > 0.0)

    @given(ends=ENDS)
    def test_all_are_inside_where_they_fit(self, ends):
        _, heights, centres = placed(ends, high=260.0)
        assert np.all(centres - heights / 2 >= -1e-9)
        if heights.sum() <= 260.0:
            assert np.all(centres + heights / 2 <= 260.0 + 1e-9)

    def test_what_has_room_stays(self):
        _, _, centres = placed([(10.0, 8.0), (30.0, 8.0), (90.0, 8.0)])
        assert centres.tolist() == [10.0, 30.0, 90.0]

    def test_two_at_one_place_share_the_way(self):
        _, _, centres = placed([(50.0, 10.0), (50.0, 10.0)])
        assert sorted(centres.tolist()) == [45.0, 55.0]


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
