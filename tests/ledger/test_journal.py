"""The file: a chain, one writer at a time, nothing lost where a writer dies."""

import json
import os
import subprocess
import sys
import threading

import pytest

import lastiterate as li
from lastiterate.errors import InvalidLedger
from lastiterate.ledger.journal import BEFORE_ALL, Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.ledger"


def added(journal, *words):
    for word in words:
        journal.append(lambda before, word=word: {"what": word})


def words(path):
    return [entry["what"] for entry in Journal(path).entries()]


class TestChain:
    def test_every_entry_names_the_one_before(self, path):
        added(Journal(path), "a", "b", "c")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines[0]["previous"] == BEFORE_ALL
        assert [lines[k]["previous"] for k in (1, 2)] == [lines[k]["hash"] for k in (0, 1)]
        assert len({line["hash"] for line in lines}) == 3

    @pytest.mark.parametrize(
        "change",
        [
            lambda lines: [lines[0], lines[1].replace('"b"', '"x"'), lines[2]],
            lambda lines: [lines[0], lines[2]],
            lambda lines: [lines[0], lines[2], lines[1]],
            lambda lines: [lines[0], lines[1], lines[1], lines[2]],
            lambda lines: lines[1:],
            lambda lines: [lines[0], "{}", *lines[1:]],
            lambda lines: [lines[0], "", *lines[1:]],
            lambda lines: [*lines, "nonsense"],
            lambda lines: [*lines, "[1]"],
        ],
    )
    def test_any_change_is_found(self, path, change):
        added(Journal(path), "a", "b", "c")
        path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
        with pytest.raises(InvalidLedger, match="does not follow"):
            Journal(path).entries()
        with pytest.raises(InvalidLedger, match="does not follow"):
            added(Journal(path), "d")

    def test_a_journal_that_shrank_is_noticed_by_whoever_knew_it(self, path):
        journal = Journal(path)
        added(journal, "a", "b")
        path.write_text(path.read_text().splitlines()[0] + "\n")
        with pytest.raises(InvalidLedger, match="shorter"):
            journal.entries()

    def test_what_another_wrote_is_taken_up(self, path):
        one, other = Journal(path), Journal(path)
        added(one, "a")
        added(other, "b")
        added(one, "c")
        assert words(path) == ["a", "b", "c"] == [entry["what"] for entry in other.entries()]

    def test_what_is_refused_is_not_written(self, path):
        added(Journal(path), "a")

        def refuse(before):
            assert [entry["what"] for entry in before] == ["a"]
            raise KeyError

        with pytest.raises(KeyError):
            Journal(path).append(refuse)
        assert words(path) == ["a"]


class TestTornLines:
    def test_at_every_byte(self, path):
        """A last line that ends anywhere is no entry, and the next writer takes its place."""
        added(Journal(path), "a", "b")
        whole = path.read_bytes()
        first = whole.index(b"\n") + 1
        for end in range(first, len(whole) - 1):
            path.write_bytes(whole[:end])
            assert words(path) == ["a"]
            added(Journal(path), "c")
            assert words(path) == ["a", "c"]
            torn = Journal(path).entries()[1].get("torn line before, bytes", 0)
            assert torn == end - first

    def test_an_entry_that_lacks_only_its_end_is_kept(self, path):
        added(Journal(path), "a", "b")
        path.write_bytes(path.read_bytes()[:-1])
        added(Journal(path), "c")
        assert words(path) == ["a", "b", "c"]

    @pytest.mark.parametrize(
        "text",
        [b"notes, one line", b"{}", b'{"n":0,"wh', b"\x00\x01", bytes(100), b"{",
         b'{"n":0,"time":"', b'{"n":0,"time":"my own notes'],
    )  # fmt: skip
    def test_a_file_without_a_whole_line_is_not_replaced(self, path, text):
        path.write_bytes(text)
        with pytest.raises(InvalidLedger, match=r"it is no ledger: .*; delete it if"):
            added(Journal(path), "a")
        assert path.read_bytes() == text

    def test_an_empty_file_may_be_begun(self, path):
        path.write_bytes(b"")
        added(Journal(path), "a")
        assert words(path) == ["a"]

    def test_zeros_as_some_file_systems_leave_them(self, path):
        added(Journal(path), "a")
        path.write_bytes(path.read_bytes() + bytes(100))
        added(Journal(path), "b")
        assert words(path) == ["a", "b"]

    def test_a_write_that_fails_leaves_nothing(self, path, monkeypatch):
        from lastiterate.ledger import journal

        added(Journal(path), "a")
        size = path.stat().st_size
        write = os.write

        class Full:
            def __getattr__(self, name):
                return self.few if name == "write" else getattr(os, name)

            def few(self, descriptor, data):
                if len(data) < 50:
                    raise OSError("disk full")
                return write(descriptor, bytes(data)[:50])

        monkeypatch.setattr(journal, "os", Full())
        with pytest.raises(OSError, match="disk full"):
            added(Journal(path), "b")
        assert path.stat().st_size == size


def test_threads_take_turns(path):
    writers = [
        threading.Thread(target=added, args=(Journal(path), *[f"{k}-{i}" for i in range(20)]))
        for k in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(words(path)) == sorted(f"{k}-{i}" for k in range(4) for i in range(20))


@pytest.mark.skipif(os.name != "posix", reason="processes are forked and killed by signals")
@pytest.mark.parametrize(
    "each, kills",
    [pytest.param(5, 5, id="few"), pytest.param(50, 50, id="many", marks=pytest.mark.slow)],
)
def test_processes_at_once_and_killed_while_writing(path, each, kills):
    """Nothing that was announced is missing or there twice; a kill adds at most one more."""
    ledger = li.Ledger(path, epsilon=5.0, delta=1e-5)
    command = [sys.executable, "-m", "tests.ledger.writers", str(path), str(each), str(kills)]
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    announced, torn = told["announced"], told["torn"]
    assert len([about for about in announced if about.startswith("steady")]) == 4 * each
    ledger.add((0.0, 0.0), "last")
    entries = ledger.entries()[2:-1]
    abouts = [entry["about"] for entry in entries]
    assert len(set(abouts)) == len(abouts)
    assert set(announced) <= set(abouts)
    assert len(abouts) <= len(announced) + kills
    assert torn >= kills / 5
    assert len({entry["id"] for entry in entries}) == len(entries)
    ledger.verify()
