"""No option of any command, and no function, destroys a file that the library did not write."""

import json
import os
import shutil

import numpy as np
import pytest

import lastiterate as li
from lastiterate import _files, plot
from lastiterate._files import sealed, with_an_end
from lastiterate.audit import empirical as trials
from lastiterate.cli import main
from lastiterate.errors import InvalidLedger, InvalidParameter
from lastiterate.features import QuadraticSketch
from lastiterate.ledger.journal import Witness
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.report import html
from lastiterate.saved_model.file_writing import OURS
from lastiterate.saved_model.model_file import read_model

RUN = ["--examples", "1000", "--batch-size", "100", "--epochs", "2", "--clip-norm", "1",
       "--noise-multiplier", "5", "--step-size", "0.1"]  # fmt: skip
MINE = b"the only copy of my work"
OURS_BEGIN = _files.begins_with(b"ours")
TRAIN = ["train", "t.csv", "--target", "y", "--schema", "s.json", "--epochs", "1"]


@pytest.fixture(autouse=True)
def quick_pages(monkeypatch):
    monkeypatch.setattr(html, "_picture", lambda *_: [])  # which take long


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a table, a model of it and a ledger."""
    made = tmp_path_factory.mktemp("whole")
    rng = np.random.default_rng(0)
    rows = [f"{int(a)},{'yes' if a > 50 else 'no'}" for a in rng.integers(0, 100, 1_000)]
    (made / "t.csv").write_text("\n".join(["a,y", *rows]) + "\n")
    (made / "s.json").write_text('{"a": {"range": [0, 100]}, "y": {"values": ["no", "yes"]}}')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        assert main([*TRAIN, "--out", "model"]) == 0
    assert main(["ledger", "open", f"{made}/l", "--epsilon", "2", "--delta", "1e-5"]) == 0
    return made


@pytest.fixture
def folder(whole, tmp_path, monkeypatch):
    """A copy of that folder, where commands run."""
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


OPEN = ["ledger", "open", "new", "--epsilon", "1"]
AUDIT = ["audit", "--model", "model/model.json"]

# A file that is there and not ours, and a command that is told to write to it.
COMMANDS = {
    "train --out": ("m/model.json", [*TRAIN, "--out", "m", "--force"]),
    "train --out, certificate": ("m/certificate.json", [*TRAIN, "--out", "m", "--force"]),
    "train --mapped": ("mine", [*TRAIN, "--mapped", "mine", "--out", "m", "--force"]),
    "train --html": ("mine", [*TRAIN, "--html", "mine", "--out", "m", "--force"]),
    "predict --out": ("mine", ["predict", "model", "t.csv", "--out", "mine"]),
    "schema --out": ("mine", ["schema", "t.csv", "--out", "mine", "--force"]),
    "account --html": ("mine", ["account", *RUN, "--html", "mine"]),
    "account --save": ("mine.toml", ["account", *RUN, "--save", "mine.toml"]),
    "calibrate --save": ("mine.toml", ["calibrate", *RUN, "--save", "mine.toml"]),
    "plot --out": ("mine.png", ["plot", "tradeoff", *RUN, "--out", "mine"]),
    "ledger open": ("mine", ["ledger", "open", "mine", "--epsilon", "1", "--delta", "1e-5"]),
    "ledger open --witness": ("mine", [*OPEN, "--delta", "1e-5", "--witness", "mine"]),
    "ledger add": ("mine", ["ledger", "add", "mine", "--epsilon", "1"]),
    "ledger head --out": ("mine", ["ledger", "head", "l", "--out", "mine"]),
    "ledger export --out": ("mine", ["ledger", "export", "l", "--out", "mine"]),
    "audit --record": ("mine", [*AUDIT, "--runs", "20", "--record", "mine"]),
    "demo --out": ("train.csv", ["demo", "--out", "."]),
    "reproduce --out": ("r/bsa-figure-2.png", ["reproduce", "bsa-figure-2", "--out", "r"]),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(capsys, folder, name):
    file, words = COMMANDS[name]
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_bytes(MINE)
    before = sorted(path for path in folder.rglob("*") if path.name != "new")
    assert main(words) == 2
    assert (folder / file).read_bytes() == MINE
    assert sorted(path for path in folder.rglob("*") if path.name != "new") == before
    said = capsys.readouterr().err
    option = name.partition(" ")[2].partition(",")[0]
    if option.startswith("--") and option != "--record":
        assert said.startswith(f"lastiterate: {option} must be ")
    assert file.split("/")[-1] in said or name == "demo --out"


FUNCTIONS = {
    "to_html": lambda path: li.account(_run()).to_html(path),
    "plot.save": lambda path: plot.save(plot.tradeoff(li.GaussianProfile(1.0)), path),
    "transform_to": lambda path: QuadraticSketch(8).fit([[1.0]]).transform_to([[1.0]], path),
    "write_witness": lambda path: _ledger(path).write_witness(path),
    "Ledger": lambda path: li.Ledger(path, epsilon=1.0, delta=1e-5),
    "Ledger(witness=)": lambda path: li.Ledger(
        path.parent / "new", epsilon=1.0, delta=1e-5, witness=path
    ),
    "save": lambda path: li.save(_model(), path.parent, overwrite=True),
}


def _run():
    return li.TrainingRun.from_dp_sgd(
        examples=1_000, batch_size=100, epochs=2, clip_norm=1.0, noise_multiplier=5.0
    )


def _ledger(path):
    return li.Ledger(path.parent / "people.ledger", epsilon=1.0, delta=1e-5)


def _model():
    rows = np.random.default_rng(0).normal(size=(1_000, 2))
    return PrivateLogisticRegression(epochs=1).fit(rows, rows[:, 0] > 0.0)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(tmp_path, name):
    path = tmp_path / {"plot.save": "mine.png", "save": "model.json"}.get(name, "mine")
    path.write_bytes(MINE)
    with pytest.raises((InvalidParameter, InvalidLedger)):
        FUNCTIONS[name](path)
    assert path.read_bytes() == MINE


def kept(match="must be a new file|not written by lastiterate"):
    """A file that is not ours is refused, and named."""
    return pytest.raises(InvalidParameter, match=match)


def write(path, text="ours, too", is_ours=OURS_BEGIN):
    _files.write_whole("out", path, text, is_ours)


class TestWhatIsReplaced:
    @pytest.mark.parametrize(
        "words", [[*TRAIN, "--out", "model"], ["schema", "t.csv", "--out", "new.json"]]
    )
    def test_by_force_what_we_wrote(self, capsys, folder, words):
        main([*words, "--force"])
        assert main(words) == 2
        assert "add --force" in capsys.readouterr().err
        assert main([*words, "--force"]) == 0

    def test_earlier_heads_of_the_same_ledger(self, folder):
        ledger, other = li.Ledger("l"), _ledger(folder / "x")
        for _ in range(2):
            ledger.write_witness("head")
            ledger.add((0.1, 0.0))
        later = (folder / "head").read_bytes()
        with kept("an earlier head of this very ledger"):
            other.write_witness("head")
        # A ledger that went back does not lose what shows it.
        (folder / "l").write_bytes(b"".join((folder / "l").read_bytes().splitlines(True)[:1]))
        with kept("an earlier head of this very ledger"):
            li.Ledger("l").write_witness("head")
        assert (folder / "head").read_bytes() == later


class TestScratch:
    @pytest.mark.parametrize("place", ["rows.f4", "."])
    def test_is_new_and_removed(self, folder, place, monkeypatch):
        from lastiterate.cli import train

        seen = []
        encode = train.encode_file

        def encoded(*args, mapped=None, **more):
            seen.append(mapped)
            return encode(*args, mapped=mapped, **more)

        monkeypatch.setattr(train, "encode_file", encoded)
        before = sorted(folder.rglob("*"))
        assert main([*TRAIN, "--mapped", place, "--features", "fourier:16", "--force"]) == 0
        assert seen[-1] is not None
        assert not seen[-1].exists()
        assert sorted(folder.rglob("*")) == before


class TestOrder:
    def test_bad_options_are_reported_first(self, capsys, folder):
        for words, said in (
            (["--epsilon", "-1"], "--epsilon must be"),
            (["--delta", "2"], "--delta must be"),
            (["--epochs", "0"], "--epochs must be"),
            (["--model", "tree"], "--model must be"),
            (["--adjacency", "x"], "--adjacency must be"),
            (["--l2", "-1"], "--l2 must be"),
            (["--class-prior", "yes=2"], "--class-prior must be"),
        ):
            assert main([*TRAIN, *words, "--out", "model"]) == 2
            assert said in capsys.readouterr().err

    def test_a_page_in_the_place_of_the_model(self, capsys, folder):
        assert main([*TRAIN, "--out", "other", "--html", "other/model.json"]) == 2
        assert "--html must be another file" in capsys.readouterr().err


def raising(error):
    def raises(*words):
        raise error

    return raises


FULL_DISK = raising(OSError(28, "No space left on device"))
each_disk = pytest.mark.parametrize("links", [True, False], ids=["with links", "without links"])


class TestWriting:
    def without(self, links, monkeypatch):
        if not links:
            monkeypatch.setattr(_files.os, "link", raising(OSError("no links here")))

    def late(self, monkeypatch, file):
        """A file of another appears where `file` is put, after all checks."""
        put = _files._put

        def put_late(draft, final):
            if final.name == file.name:
                file.write_bytes(MINE)
            return put(draft, final)

        monkeypatch.setattr(_files, "_put", put_late)

    def test_drafts_have_names_of_their_own(self, tmp_path):
        (tmp_path / ".a.draft").write_bytes(MINE)
        write(tmp_path / "a", is_ours=None)
        assert (tmp_path / ".a.draft").read_bytes() == MINE
        assert sorted(path.name for path in tmp_path.iterdir()) == [".a.draft", "a"]

    def test_json_that_is_not_ours(self):
        known = _files.is_record(lambda record: "x" in record)
        assert known(json.dumps({"x": 1}).encode())
        assert not any(map(known, (b"", b"[]", b"nan", b"\xff", b'{"y": 1}', b"[" * 100_000)))

    @each_disk
    def test_what_appears_after_all_checks_is_kept(self, tmp_path, monkeypatch, links):
        self.without(links, monkeypatch)
        write(tmp_path / "b")
        assert (tmp_path / "b").read_text() == "ours, too"
        self.late(monkeypatch, tmp_path / "a")
        with kept("out must be a new file"):
            write(tmp_path / "a")
        assert (tmp_path / "a").read_bytes() == MINE
        assert sorted(one.name for one in tmp_path.iterdir()) == ["a", "b"]

    def test_what_is_no_longer_ours_is_kept(self, tmp_path):
        (tmp_path / "a").write_text("ours, before")
        write(tmp_path / "a")
        assert (tmp_path / "a").read_text() == "ours, too"
        (tmp_path / "a").write_bytes(MINE)
        with kept("not written by lastiterate"):
            write(tmp_path / "a")
        assert [one.read_bytes() for one in tmp_path.iterdir()] == [MINE]

    def test_a_folder_is_left_as_it_was_or_with_what_came_since(self, tmp_path, monkeypatch):
        put, folder = _files._put, tmp_path / "m"

        def put_late(draft, final):
            (folder / "certificate.json").write_bytes(MINE)
            return put(draft, final)

        monkeypatch.setattr(_files, "_put", put_late)
        with kept("folder must be"):
            li.save(_model(), folder)
        assert [one.read_bytes() for one in folder.iterdir()] == [MINE]

    @pytest.mark.parametrize("before", [None, "ours"])
    @pytest.mark.parametrize("other", ["x/../b", "link"])
    def test_two_names_of_one_file_are_refused(self, tmp_path, other, before):
        (tmp_path / "x").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "b")
        if before is not None:
            (tmp_path / "b").write_text(before)
        paths = [tmp_path / "b", tmp_path / other]
        with kept("out must be"):
            _files.write_files(
                "out", dict(zip(paths, "12", strict=True)), dict.fromkeys(paths, OURS_BEGIN)
            )
        assert (tmp_path / "b").exists() == (before is not None)
        assert before is None or (tmp_path / "b").read_text() == before
        assert (tmp_path / "link").is_symlink()

    def test_a_link_to_one_of_ours_stays_one(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "a").write_text("ours, before")
        (tmp_path / "link").symlink_to("real/a")
        write(tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real" / "a").read_text() == "ours, too"
        assert sorted(one.name for one in tmp_path.rglob("*")) == ["a", "link", "real"]

    @pytest.mark.parametrize("target", ["nothing", "link"])
    def test_a_link_to_nothing_is_kept(self, tmp_path, target):
        (tmp_path / "link").symlink_to(target)
        with kept("out must be"):
            write(tmp_path / "link")
        assert [one.is_symlink() for one in tmp_path.iterdir()] == [True]

    def test_a_witness_behind_a_link_stays_behind_it(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "head").symlink_to("real/head")
        ledger = _ledger(tmp_path / "x")
        ledger.write_witness(tmp_path / "real" / "head")
        li.Ledger(ledger.path, witness=tmp_path / "head").add((0.1, 0.0))
        assert (tmp_path / "head").is_symlink()
        assert json.loads((tmp_path / "real" / "head").read_text())["n"] == 1

    @each_disk
    @pytest.mark.parametrize("new", [True, False])
    def test_all_are_as_they_were_if_the_last_is_refused(self, tmp_path, monkeypatch, links, new):
        paths = [tmp_path / one for one in "abc"]
        for path in paths[: 2 if new else 3]:
            path.write_text(f"ours, {path.name}")
        before = {path: path.read_bytes() for path in paths if path.exists()}
        looked, seen = _files.refuse_replacing, []

        def look_late(name, path, *words, **more):
            seen.append(path)
            if len(seen) > 6 and path.name == "c":  # after the checks of all files, twice
                path.write_bytes(MINE)
            looked(name, path, *words, **more)

        self.late(monkeypatch, paths[2])
        monkeypatch.setattr(_files, "refuse_replacing", look_late)
        self.without(links, monkeypatch)
        with kept("not written by lastiterate"):
            _files.write_files(
                "out", dict.fromkeys(paths, "ours, too"), dict.fromkeys(paths, OURS_BEGIN)
            )
        found = {path: path.read_bytes() for path in tmp_path.iterdir()}
        assert found == before | {tmp_path / "c": MINE}

    def test_nothing_is_written_before_all_are_checked(self, tmp_path, monkeypatch):
        monkeypatch.setattr(_files, "_draft_beside", raising(AssertionError()))
        (tmp_path / "b").write_bytes(MINE)
        paths = [tmp_path / "a", tmp_path / "b"]
        with kept():
            _files.write_files("out", dict.fromkeys(paths, ""), dict.fromkeys(paths))

    def test_no_draft_is_left_on_a_full_disk(self, tmp_path, monkeypatch):
        opened = _files.Path.open

        class Full:
            def __init__(self, file):
                self.file = file

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self.file.close()
                FULL_DISK()

            def write(self, content):
                pass  # into a buffer

        monkeypatch.setattr(_files.Path, "open", lambda *words: Full(opened(*words)))
        with pytest.raises(OSError, match="No space"):
            write(tmp_path / "a", is_ours=None)
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "name",
    [
        "train --out", "train --html", "predict --out", "schema --out", "plot --out",
        "account --html", "account --save", "ledger export --out",
    ],
)  # fmt: skip
def test_what_appears_while_a_command_works_is_kept(capsys, folder, monkeypatch, name):
    file, words = COMMANDS[name]
    made = _files._draft_beside

    def late(path, content):
        if path == folder / file:
            path.write_bytes(MINE)
        return made(path, content)

    monkeypatch.setattr(_files, "_draft_beside", late)
    assert main(words) == 2
    assert (folder / file).read_bytes() == MINE
    assert not [*folder.rglob("*.draft")]
    assert " must be a new file" in capsys.readouterr().err


class TestTakenWhileTraining:
    """What privacy was spent on is kept under a free name."""

    def trained(self, monkeypatch, take, words=TRAIN):
        from lastiterate.cli import trained_model

        fit = trained_model.fit_table

        def slowly(*words):
            take()
            return fit(*words)

        monkeypatch.setattr(trained_model, "fit_table", slowly)
        return main(words)

    @pytest.mark.parametrize(
        "out, beside, force",
        [
            ("m", "m-2", []),
            ("m", "m-2", ["--force"]),
            ("m.v1", "m-2.v1", []),
            ("sub/m", "sub/m-2", []),
            (".", "../work-2", ["--force"]),
        ],
    )
    def test_by_a_file_of_another(self, capsys, folder, monkeypatch, out, beside, force):
        work = folder / "work"
        work.mkdir()
        monkeypatch.chdir(work)
        for name in ("t.csv", "s.json"):
            shutil.copy(folder / name, work)
        place = work / out

        def take():
            place.mkdir(exist_ok=True, parents=True)
            (place / "model.json").write_bytes(MINE)

        assert self.trained(monkeypatch, take, [*TRAIN, "--out", out, *force]) == 2
        said = capsys.readouterr()
        assert (place / "model.json").read_bytes() == MINE
        assert main(["verify", beside]) == 0
        assert "was written instead" in said.err
        assert str((work / beside).resolve().name) in said.err
        assert "must be a new file" in said.err
        assert f"{(work / beside).name if out == '.' else beside}/model.json" in said.out

    def test_by_another_training(self, capsys, folder, monkeypatch):
        def take():
            shutil.copytree("model", "m", dirs_exist_ok=True)
            shutil.copytree("model", "m-2", dirs_exist_ok=True)

        before = (folder / "model" / "model.json").read_bytes()
        assert self.trained(monkeypatch, take, [*TRAIN, "--out", "m"]) == 2
        assert all((folder / one / "model.json").read_bytes() == before for one in ("m", "m-2"))
        assert main(["verify", "m-3"]) == 0

    def test_by_a_file_in_the_place_of_the_folder(self, folder, monkeypatch):
        def take():
            (folder / "m").write_bytes(MINE)

        assert self.trained(monkeypatch, take, [*TRAIN, "--out", "m"]) == 2
        assert (folder / "m").read_bytes() == MINE
        assert main(["verify", "m-2"]) == 0

    def test_the_page(self, capsys, folder, monkeypatch):
        words = [*TRAIN, "--out", "m", "--html", "p.html"]
        assert self.trained(monkeypatch, lambda: (folder / "p.html").write_bytes(MINE), words) == 2
        assert (folder / "p.html").read_bytes() == MINE
        assert (folder / "p-2.html").read_bytes().startswith(b"<!DOCTYPE html>")
        said = capsys.readouterr()
        assert "--html must be a new file" in said.err
        assert "You may publish" in said.out

    def test_a_disk_that_is_full_says_so(self, capsys, folder, monkeypatch):
        monkeypatch.setattr(_files, "_draft_beside", FULL_DISK)
        assert main([*TRAIN, "--out", "m"]) == 2
        assert "No space left" in capsys.readouterr().err
        assert not (folder / "m").exists()

    @pytest.mark.slow
    def test_unlearning(self, capsys, folder, monkeypatch):
        from lastiterate.linear_model.estimator import PrivateLinearModel

        (folder / "k").write_bytes(b"a secret of 16 bytes or more")
        assert main([*TRAIN, "--l2", "0.1", "--key", "k", "--out", "m"]) == 0
        made = PrivateLinearModel.unlearn

        def slowly(*words, **more):
            (folder / "new").mkdir()
            (folder / "new" / "certificate.json").write_bytes(MINE)
            return made(*words, **more)

        monkeypatch.setattr(PrivateLinearModel, "unlearn", slowly)
        words = ["unlearn", "m", "t.csv", "--rows", "3", "--epsilon", "1", "--key", "k"]
        assert main([*words, "--at-any-cost", "--out", "new"]) == 2
        assert [one.name for one in (folder / "new").iterdir()] == ["certificate.json"]
        assert "new-2 was written instead" in capsys.readouterr().err
        assert main(["verify", "new-2"]) == 0


class TestMarksElsewhere:
    def test_a_page_that_quotes_our_mark_is_kept(self, tmp_path):
        page = tmp_path / "p.html"
        for _ in range(2):
            li.account(_run()).to_html(page)  # replaces our own
        mine = b"<!-- my notes -->" + page.read_bytes()
        page.write_bytes(mine)
        with kept("not written by lastiterate"):
            li.account(_run()).to_html(page)
        assert page.read_bytes() == mine

    @pytest.mark.parametrize("ending", [".svg", ".png", ".pdf"])
    def test_a_picture_that_holds_one_of_ours_is_kept(self, tmp_path, ending):
        path, picture = tmp_path / f"a{ending}", plot.tradeoff(li.GaussianProfile(1.0))
        for _ in range(2):
            plot.save(picture, path)  # replaces our own
        mine = b"MINE" + bytes(1_000) + path.read_bytes()
        path.write_bytes(mine)
        with kept("not written by lastiterate"):
            plot.save(picture, path)
        assert path.read_bytes() == mine

    def test_a_card_is_known_until_somebody_edits_it(self):
        is_ours, card = OURS["README.md"], sealed(b"# A private model\n")
        assert is_ours(card)
        for edited in (b"", b"# A private model\n", card + b"More\n", card.replace(b"A", b"My")):
            assert not is_ours(edited)


class TestPipesAndDevices:
    """They have no end that is sure to come, so nothing waits for one."""

    @pytest.fixture(params=["pipe", "device"])
    def endless(self, request, tmp_path):
        path = tmp_path / "folder" / "certificate.json"
        path.parent.mkdir()
        os.mkfifo(path) if request.param == "pipe" else path.symlink_to("/dev/zero")
        return path

    def test_are_not_read(self, endless):
        for read in (
            lambda: li.verify(endless.parent),
            lambda: li.verify(endless),
            lambda: read_model(endless),
            lambda: li.Ledger(endless),
            lambda: Witness(endless).head(),
            lambda: with_an_end(endless),
        ):
            with pytest.raises((li.LastIterateError, OSError)):
                read()


class TestSkeletons:
    """A schema that somebody began to fill in is theirs."""

    @pytest.mark.parametrize(
        "mine",
        [
            {"a": {"range": [None, None], "missing": 3}},
            {"a": {"values": [], "baseline": "y"}},
            {"a": {"range": [None, None], "comment": "a note"}},
        ],
    )
    def test_are_known_until_somebody_edits_them(self, folder, mine):
        (folder / "k.csv").write_text("a,b\n1,x\n2,y\n")
        command = ["schema", "k.csv", "--out", "k.json", "--force"]
        assert main(command) == main(command) == 0
        made = json.loads((folder / "k.json").read_text())
        for text in (json.dumps(made | mine), json.dumps(made, indent=2)):
            (folder / "k.json").write_text(text)
            assert main(command) == 2
            assert (folder / "k.json").read_text() == text


class TestRecordsOfAudits:
    @pytest.mark.parametrize("mine", [b" \n", b"\n\n\n"])
    def test_blank_files_are_kept(self, tmp_path, mine):
        (tmp_path / "r").write_bytes(mine)
        with kept("file must be"):
            trials._read_blocks(tmp_path / "r", {"format": "x"})
        assert (tmp_path / "r").read_bytes() == mine

    def test_a_record_is_never_truncated(self, tmp_path, monkeypatch):
        path, header = tmp_path / "r", {"format": "x"}
        assert trials._read_blocks(path, header) == {}
        path.write_bytes(path.read_bytes() + b'{"world": 0, "num')
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            patch.setattr(_files, "_draft_beside", FULL_DISK)
            with pytest.raises(OSError, match="No space"):
                trials._read_blocks(path, header)
        assert path.read_bytes() == before
        assert trials._read_blocks(path, header) == {}
        assert before.startswith(path.read_bytes())
