"""What a listener hears of a loop."""

import pytest

from lastiterate._progress import listen, throughout, track


def test_the_items_come_as_they_are_heard_or_not():
    heard = []
    with listen(lambda what, share: heard.append((what, share))):
        assert list(track("counting", range(4))) == [0, 1, 2, 3]
    assert heard == [("counting", share) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert list(track("counting", range(4))) == [0, 1, 2, 3]
    assert len(heard) == 5


def test_nobody_listens_after_an_error():
    heard = []

    def fail():
        with listen(lambda what, share: heard.append(share)):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    list(track("counting", [1]))
    assert heard == []


def test_nothing_to_do_is_done():
    heard = []
    with listen(lambda what, share: heard.append(share)):
        assert list(track("counting", [])) == []
    assert heard == [1.0]


def test_a_loop_that_fails_is_over():
    heard = []

    def fail():
        yield 1
        raise KeyboardInterrupt

    def take():
        with listen(lambda what, share: heard.append(share)):
            for _ in track("counting", fail(), 4):
                pass

    with pytest.raises(KeyboardInterrupt):
        take()
    assert heard == [0.0, 0.25, 1.0]


def test_loops_inside_a_loop_are_parts_of_it():
    heard = []
    with listen(lambda what, share: heard.append((what, share))):
        for _ in track("outer", range(2)):
            list(track("inner", range(2)))
            list(track("another", range(1)))
    assert {what for what, _ in heard} == {"outer"}
    assert [share for _, share in heard] == [0.0, 0.0, 0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1.0]


def test_rounds_that_nobody_can_count_have_no_share():
    heard = []
    with listen(lambda what, share: heard.append((what, share))), throughout("seeking"):
        list(track("inner", range(2)))
    assert heard == [("seeking", None)] * 3 + [("seeking", 1.0)]
    with throughout("seeking"):
        pass


def test_no_item_is_lost_to_a_wrong_count():
    with listen(lambda *_: None):
        assert list(track("counting", iter("abc"), 2)) == ["a", "b", "c"]
