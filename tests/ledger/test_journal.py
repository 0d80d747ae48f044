"""The file: a chain, one writer at a time, nothing lost where a writer dies; kept heads of it."""

import itertools
import json
import os
import pickle
import subprocess
import sys
import threading

import pytest

import lastiterate as li
from lastiterate.certificate.signature import LEDGER_HEAD, Signer, wrong_signature
from lastiterate.errors import InvalidLedger, InvalidParameter
from lastiterate.ledger import journal
from lastiterate.ledger.journal import BEFORE_ALL, Head, Journal, Witness
from lastiterate.ledger.ledger import Ledger
from tests.certificate.test_signature import write_pair
from tests.slow import slow

COST = (0.01, 0.0)
BUDGET = {"epsilon": 2.0, "delta": 1e-5}


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
        hashes = [line["hash"] for line in lines]
        assert [line["previous"] for line in lines] == [BEFORE_ALL, *hashes[:2]]
        assert len(set(hashes)) == 3

    @pytest.mark.parametrize(
        "change",
        [
            lambda a, b, c: [a, b.replace('"b"', '"x"'), c],
            lambda a, b, c: [a, c],
            lambda a, b, c: [a, c, b],
            lambda a, b, c: [a, b, b, c],
            lambda a, b, c: [b, c],
            lambda a, b, c: [a, "{}", b, c],
            lambda a, b, c: [a, "", b, c],
            lambda a, b, c: [a, b, c, "nonsense"],
            lambda a, b, c: [a, b, c, "[1]"],
        ],
    )
    def test_any_change_is_found(self, path, change):
        added(Journal(path), "a", "b", "c")
        path.write_text("\n".join(change(*path.read_text().splitlines())) + "\n")
        for use in (Journal(path).entries, lambda: added(Journal(path), "d")):
            with pytest.raises(InvalidLedger, match="does not follow"):
                use()

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

    @pytest.mark.parametrize(
        "damage, left",
        [
            (lambda whole: whole[:-1], ["a", "b", "c"]),  # an entry that lacks only its end
            (lambda whole: whole + bytes(100), ["a", "b", "c"]),  # as some file systems leave them
            (lambda whole: b"", ["c"]),
        ],
    )
    def test_what_can_be_gone_on_with(self, path, damage, left):
        added(Journal(path), "a", "b")
        path.write_bytes(damage(path.read_bytes()))
        added(Journal(path), "c")
        assert words(path) == left

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

    def test_a_write_that_fails_leaves_nothing(self, path, monkeypatch):
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
    told = [[f"{k}-{i}" for i in range(20)] for k in range(4)]
    writers = [threading.Thread(target=added, args=(Journal(path), *each)) for each in told]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(words(path)) == sorted(itertools.chain(*told))


@pytest.mark.skipif(os.name != "posix", reason="processes are forked and killed by signals")
@pytest.mark.parametrize("each, kills", [(5, 5), slow(50, 50)])
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


@pytest.fixture
def witness(tmp_path):
    return tmp_path / "elsewhere.json"


@pytest.fixture
def ledger(path, witness):
    ledger = Ledger(path, witness=witness, **BUDGET)
    ledger.add(COST, "a")
    return ledger


class TestWitness:
    """A ledger that went back is refused."""

    def test_an_older_copy_is_refused_also_if_it_went_on_from_there(self, ledger, path, witness):
        older = path.read_bytes()
        ledger.add(COST, "b")
        path.write_bytes(older)
        with pytest.raises(InvalidLedger, match="ends at entry 1, and had entry 2: an older copy"):
            Ledger(path, witness=witness)
        Ledger(path).verify()  # which cannot know
        for about in "xyz":
            Ledger(path).add(COST, about)
        with pytest.raises(InvalidLedger, match="entry 2 is another than it was"):
            Ledger(path, witness=witness)

    def test_while_it_is_open(self, ledger, path, witness):
        opened, fresh = (Ledger(path, witness=witness) for _ in range(2))
        whole = path.read_bytes()
        pickle.loads(pickle.dumps(ledger)).add(COST, "b")  # copies have the witness, too
        assert Witness(witness).head() == Head.of(ledger.entries())
        path.write_bytes(whole)
        for one in (opened, fresh):
            with pytest.raises(InvalidLedger, match="older copy"):
                one.add(COST, "c")
        assert path.read_bytes() == whole

    def test_another_ledger_or_none(self, ledger, path, witness, tmp_path):
        other = Ledger(tmp_path / "other.ledger", **BUDGET)
        path.write_bytes(other.path.read_bytes())
        with pytest.raises(InvalidLedger, match="not the ledger that the kept head is of"):
            Ledger(path, witness=witness)
        path.unlink()
        with pytest.raises(InvalidLedger, match="not the ledger"):
            Ledger(path, witness=witness, **BUDGET)

    def test_one_that_is_gone_or_damaged(self, ledger, path, witness):
        witness.write_text("{}")
        with pytest.raises(InvalidLedger, match="it is no"):
            Ledger(path, witness=witness)
        witness.unlink()
        with pytest.raises(InvalidLedger, match="is missing; `write_witness` begins one"):
            Ledger(path, witness=witness)
        with pytest.raises(InvalidLedger, match="missing"):
            ledger.add(COST)
        Ledger(path).write_witness(witness)
        assert len(Ledger(path, witness=witness).entries()) == 2

    def test_one_that_is_behind_is_no_lie(self, ledger, path, witness):
        """A writer that died before it noted its entry, or one that has no witness."""
        Ledger(path).add(COST, "b")
        assert json.loads(witness.read_text())["n"] == 1
        ledger.add(COST, "c")
        assert json.loads(witness.read_text())["n"] == 3

    def test_neither_more_than_a_head_nor_the_ledger_is_replaced(self, ledger, path, tmp_path):
        ledger.write_witness(kept := tmp_path / "kept.witness")
        kept.write_text(text := json.dumps(json.loads(kept.read_text()) | {"notes": "precious"}))
        with pytest.raises(InvalidParameter, match="never replaced"):
            ledger.write_witness(kept)
        assert kept.read_text() == text
        with pytest.raises(InvalidParameter, match="another file than the ledger"):
            ledger.write_witness(path.parent / "." / path.name)
        assert len(ledger.entries()) == 2

    def test_a_signed_head_is_no_certificate(self, ledger, tmp_path):
        private, public = write_pair(tmp_path)
        text = Head.of(ledger.entries()).as_text()
        record = json.loads(Signer(private).signed(text, purpose=LEDGER_HEAD))
        assert wrong_signature(record, public, purpose=LEDGER_HEAD) is None
        assert wrong_signature(record, public) is not None
