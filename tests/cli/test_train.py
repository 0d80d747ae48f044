"""schema and train: from a raw table to a model, what is said of it, and what is refused."""

import errno
import json
import os
import re
import sys

import numpy as np
import pytest
from rich.progress import Progress

import lastiterate as li
from lastiterate.certificate.fields import digest
from lastiterate.certificate.verify import verify
from lastiterate.cli import main
from lastiterate.cli import train as training
from lastiterate.report import html
from lastiterate.train.noise import Randomness

from .people import PAY, SCHEMA, SHUFFLED, TOKEN, TRAIN, change, columns, numbers, write

RUNG = {"x": {"range": [-1, 1]}, "side": {"values": ["left", "right"]},
        "y": {"values": ["no", "yes"]}}  # fmt: skip
TEST = ["--test", "test.csv", "--test-is-public"]


def plain(text):
    return " ".join(text.split())


class TestSchema:
    def test_has_names_and_kinds_and_no_cell(self, answer, folder):
        text = answer("schema", "t.csv", "--target", "rich")
        kinds = {name: next(iter(rule)) for name, rule in json.loads(text).items()}
        assert kinds == {
            "id": "values", "age": "range", "job": "values", "weight": "range", "pay": "range",
            "rich": "values",
        }  # fmt: skip
        for cell in (TOKEN, "nurse", "yes", "180001"):
            assert cell not in text
        number = answer("schema", "t.csv", "--target", "pay", "--task", "regression")
        assert json.loads(number)["pay"] == {"range": [None, None]}

    def test_must_be_filled_in(self, answer, folder):
        answer("schema", "t.csv", "--target", "rich", "--out", "new.json")
        text = answer(*TRAIN[:5], "new.json", code=2)
        assert "empty ranges or values of id, age, job, weight, pay, rich" in text

    @pytest.mark.parametrize("header", [f"{TOKEN},nurse", f"{TOKEN},7"])
    def test_a_file_without_names_is_refused(self, answer, folder, header):
        (folder / "t.csv").write_text(f"{header}\nB,nurse\nC,clerk\n")
        assert "the first line must be the names" in answer("schema", "t.csv", code=2)

    def test_a_target_that_is_no_column(self, answer, folder):
        text = answer("schema", "t.csv", "--target", "richh", code=2)
        assert "one of the 6 names" in text
        assert "the header, such as rich; got" in text
        text = answer(*TRAIN[:3], "richh", *TRAIN[4:], code=2)
        assert f"the header: {', '.join(SCHEMA)} (did you mean 'rich'?)" in text
        (folder / "rows.csv").write_text(f"{TOKEN},teacher,yes\nBob,clerk,no\n")
        for command in (["train", "rows.csv", "--classes", "yes,no"], ["schema", "rows.csv"]):
            text = answer(*command, "--target", "y", code=2)
            assert "the 3 names in the first line" in text


class TestRefusals:
    @pytest.mark.parametrize(
        "entries, said",
        [
            ({"weight": None}, "about every column: .* found nothing about weight"),
            ({"weight": {"range": [0, 400_000]}}, "'weight' .* an empty cell in rows 1, 11, 21,"),
            ({"job": {"range": [0, 1]}}, "column 'job' .* text or an infinite number in rows 1,"),
            ({"age": "as it is"}, "--feature-bound must be given where columns .*: age"),
            ({"rich": None}, "--classes must be declared"),
            ({"rich": {"range": [0, 1]}}, "to predict numbers, add --task regression"),
            ({"rich": "drop"}, "must be labels, such as"),
            ({"rich": {"values": ["no"]}}, "at least two labels"),
            ({"size": "drop"}, "the table has no column 'size'; it has"),
        ],
    )
    def test_schemas(self, answer, folder, entries, said):
        change(folder, **entries)
        text = answer(*TRAIN, code=2)
        assert re.search(said, text), text
        assert not (folder / "model").exists()

    @pytest.mark.parametrize(
        "words, said",
        [
            (["--model", "ridge"], "add --task regression"),
            (["--model", "forest"], "'logistic', 'svc'"),
            (["--task", "ranking"], "'classification', 'regression'"),
            (["--target-range", "0", "1"], "add --task regression"),
            (["--classes", "no,yes"], "found both"),
            (["--task", "regression", "--classes", "no,yes"], "left out for --task regression"),
            (["--task", "regression"], "schema['rich'] must be a range"),
            (["--test", "test.csv"], "either public, --test-is-public, or charged for"),
            ([*TEST, "--test-epsilon", ".1"], "found both"),
            (["--test-is-public"], "--test must be a file"),
            (["--test", "test.csv", "--test-epsilon", "2"], "--test-epsilon must be"),
            (["--test", "none.csv", "--test-is-public"], "No such file"),
            (["--test", "t.csv", "--test-is-public"], "whose rows are private"),
            (["--sign", "s.json"], "Ed25519 private key"),
            (["--title", "Pay"], "--title must be left out without --html"),
            *(
                (["--class-prior", given], "--class-prior must be label=share pairs")
                for given in ("", "yes", "yes=", "yes=x", "yes=nan", "yes=0", "yes=1", "yes=-1",
                              "yes=2", "yes=0.1,no=0.1", "yes=0.1,yes=0.9", "yes=inf", "=0.1",
                              "yes=0.1,", "0.1,0.9")
            ),
            (["--class-prior", "maybe=0.1"], "found 'maybe', which is none of the labels no, yes"),
            (["--class-prior", "yes=0.1", "--model", "svc"], "only --model logistic"),
            (["--rate-matching", "1"], "--rate-matching must be a number in"),
            (["--rate-matching", "nan"], "--rate-matching must be a number in"),
            (["--rate-matching", ".1", "--model", "svc"], "only --model logistic has probabilit"),
            (["--rate-matching", "0.1", "--key", "key"], "left out with --key"),
        ],
    )  # fmt: skip
    def test_flags(self, answer, folder, words, said):
        assert said in answer(*TRAIN, *words, code=2)
        assert not (folder / "model").exists()

    def test_a_schema_is_needed_and_how_to_begin_one(self, answer, folder):
        text = answer(*TRAIN[:4], code=2)
        assert "`lastiterate schema t.csv --target rich --out schema.json`" in text

    def test_an_empty_target(self, answer, folder):
        text = (folder / "t.csv").read_text()
        (folder / "t.csv").write_text(text.replace(",yes", ",", 1))
        said = answer(*TRAIN, code=2)
        assert "target 'rich' must be a label in every row" in said
        assert "an empty cell in row " in said
        change(folder, rich={"values": ["no", "yes"], "missing": "yes"})
        answer(*TRAIN)

    def test_regression_needs_one_range(self, answer, folder):
        change(folder, pay=None)
        assert "the target's range must be declared" in answer(*PAY, code=2)
        change(folder, pay={"range": [0, 90_000]})
        assert "found both" in answer(*PAY, "--target-range", "0", "9", code=2)

    def test_nothing_is_overwritten_in_silence(self, answer, folder):
        file = folder / "trained" / "model.json"
        before = file.read_text()
        assert "add --force to replace" in answer(*TRAIN, "--out", "trained", code=2)
        assert file.read_text() == before
        answer(*TRAIN, "--out", "trained", "--force")
        assert file.read_text() != before

    @pytest.mark.parametrize("kind", ["csv", "npz"])
    def test_files_that_are_no_tables(self, answer, folder, kind):
        for content in (b"", b"junk", b"x,y\n1\n", b"x,y\n\x00,1\n", b"x,y\n1,2\n"):
            (folder / f"data.{kind}").write_bytes(content)
            text = answer("train", f"data.{kind}", "--target", "y", code=2)
            assert len(text.strip().splitlines()) == 1
        (folder / f"data.{kind}").unlink()
        assert "No such file" in answer("train", f"data.{kind}", "--target", "y", code=2)
        text = answer("train", "missing.xls", "--target", "y", code=2)
        assert "must be a file that ends in .csv" in text


class TestTraining:
    def test_the_verdict_and_what_may_be_published_come_first(self, answer, folder):
        lines = answer(*TRAIN).splitlines()
        assert len(lines) < 15
        assert lines[0].startswith("certified: epsilon = 2.0000 at delta = 1e-05, one example rep")
        listed = [line.split()[0] for line in lines if line.startswith("    ")]
        assert listed == ["model/model.json", "model/certificate.json"]
        assert all((folder / name).exists() for name in listed)
        text = " ".join(lines)
        assert "You may publish:" in text
        assert "a noisy mean and mean squared norm of the clipped rows" in text
        assert "Treated as public: the column names and the schema, the number of rows." in text
        assert "<- used" not in text

    def test_the_whole_report_on_request(self, answer, folder, monkeypatch):
        for text in (answer(*TRAIN, "--report"), answer("verify", "trained", "--report")):
            assert "<- used" in text
            assert "The trainer enforced that" in text
        monkeypatch.setattr(html, "_picture", lambda *_: [])  # which take long
        titled = ["--html", "page.html", "--title", "Pay of 2024"]
        assert "page.html" in answer(*TRAIN, "--out", "other", *titled)
        assert "<h1>Pay of 2024</h1>" in (folder / "page.html").read_text()

    def test_progress_is_shown_on_a_terminal_only(self, capsys, folder, monkeypatch):
        change(folder, job={"values": ["clerk", "nurse", "spy"]})  # or it warns of spies
        assert main(TRAIN) == 0
        assert capsys.readouterr().err == ""
        drawn = []
        monkeypatch.setattr(Progress, "add_task", lambda bar, what, **_: drawn.append(what))
        monkeypatch.setattr(Progress, "update", lambda *_, **__: None)
        monkeypatch.setattr(Progress, "remove_task", lambda *_: None)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        assert main([*TRAIN, "--force"]) == 0
        assert "training" in drawn

    @pytest.mark.parametrize("when", ["training", "writing"])
    def test_interrupted_it_leaves_nothing(self, answer, folder, monkeypatch, when):
        def interrupt(*_, **__):
            raise KeyboardInterrupt

        if when == "training":
            monkeypatch.setattr(Randomness, "rounded_normals", interrupt)
        else:
            # After the first of the two files.
            link, made = os.link, []
            monkeypatch.setattr(
                os, "link", lambda *paths: interrupt() if made else made.append(link(*paths))
            )
        assert "interrupted" in answer(*TRAIN, "--out", "some/model", code=130)
        assert not (folder / "some").exists()

    def test_columns_far_beyond_the_bound_are_said(self, capsys, folder):
        change(folder, weight={"as it is": True, "missing": 200_000})
        assert main([*TRAIN, "--feature-bound", "1.7", "--delta", "0.01"]) == 0
        text = capsys.readouterr().err
        assert "of the examples are more than ten times as long" in text
        assert "warning: delta = 0.01 is not below 1/n for n = 2,000 examples" in text

    @pytest.mark.parametrize("cell", [TOKEN, "51234.56"])
    def test_a_label_of_one_row_is_not_published(self, answer, folder, cell):
        lines = (folder / "t.csv").read_text().splitlines()
        lines[7] = lines[7].rpartition(",")[0] + f",{cell}"
        (folder / "t.csv").write_text("\n".join(lines) + "\n")
        told = [answer(*TRAIN), *(path.read_text() for path in (folder / "model").iterdir())]
        assert not [each for each in told if cell in each]
        assert json.loads((folder / "model/model.json").read_text())["classes"] == ["no", "yes"]

    def test_arrays_and_mapped_files(self, answer, folder):
        rows = np.random.default_rng(0).normal(size=(500, 3))
        np.savez(folder / "data.npz", x=rows, y=(rows[:, 0] > 0).astype(int))
        (folder / "n.json").write_text('{"*": {"range": [-3, 3]}}')
        words = ["train", "data.npz", "--target", "y", "--classes", "0,1", "--schema", "n.json"]
        answer(*words, "--mapped", "rows.f4")
        assert not (folder / "rows.f4").exists()
        record = json.loads((folder / "model" / "certificate.json").read_text())
        assert record["run"]["batches"]["kind"] == "ShuffledBlocksOnce"
        answer("verify", "model")

    def test_a_clip_norm_is_used_and_kept(self, answer, folder):
        answer(*TRAIN, "--clip-norm", "0.5")
        answer("verify", "model")
        record = json.loads((folder / "model" / "certificate.json").read_text())
        bound, constant = record["features"]["bound"], record["features"]["intercept"]
        assert record["objective"]["clip"] == pytest.approx(0.5 / np.hypot(bound, constant))


class TestTooLittleMemory:
    """One line, and no traceback, wherever memory ends."""

    @pytest.mark.parametrize(
        "error", [MemoryError("SECRET"), OSError(errno.ENOMEM, "Cannot allocate memory")]
    )
    def test_names_the_option_where_there_is_one(self, answer, monkeypatch, error):
        def fail(*_, **__):
            raise error

        monkeypatch.setattr(training, "open_table", fail)
        monkeypatch.setattr(li, "account", fail)
        for words, remedy in ((TRAIN[:4], True), ([*TRAIN[:4], "--mapped", "scratch"], False),
                              (["account", *SHUFFLED], False)):  # fmt: skip
            text = answer(*words, code=2)
            assert text.count("\n") == 1
            assert "must fit into memory" in text
            assert ("add --mapped FOLDER" in text) == remedy
            assert "SECRET" not in text
            assert "Errno" not in text


class TestTestFiles:
    def test_that_are_public(self, answer, folder):
        (folder / "key").write_bytes(bytes(range(32)))
        text = answer(*TRAIN, *TEST, "--key", "key")
        assert "the number of rows, the rows of test.csv." in plain(text)
        assert "Keep secret: key." in plain(text)
        line = next(one for one in text.splitlines() if one.startswith("accuracy"))
        truth = np.array(columns((folder / "test.csv").read_text())["rich"])
        found = np.array(columns(answer("predict", "model", "test.csv"))["rich"])
        assert f"{np.mean(found == truth):.1%} (" in line
        frequent = max(np.mean(truth == "no"), np.mean(truth == "yes"))
        assert f"most frequent label: {frequent:.1%})" in line
        record = json.loads((folder / "model" / "certificate.json").read_text())
        kinds = [one["kind"] for one in record["other_releases"]]
        assert kinds == ["mean", "outliers", "undeclared"]

    @pytest.mark.parametrize("words", [TRAIN, [*PAY, "--epsilon", "2"]])
    def test_that_are_private_are_in_the_certificate(self, answer, folder, words):
        change(folder, pay={"range": [20_000, 80_000]})
        text = plain(answer(*words, "--test", "test.csv", "--test-epsilon", "0.5"))
        assert "which the guarantee includes" in text
        assert ("it is private here" in text) == (words is TRAIN)
        file = folder / "model" / "certificate.json"
        assert 1.98 < verify(file).epsilon(1e-5) <= 2.0
        record = json.loads(file.read_text())
        release = record["other_releases"][-1]
        assert release["kind"] == ("accuracy" if words is TRAIN else "errors")
        assert 0.0 <= release["published (noisy)"] <= 1.0
        assert "holds: epsilon = " in answer("verify", "model")
        release["noise_std"] /= 2
        file.write_text(json.dumps(record | {"digest": digest(record)}))
        assert "does not hold" in answer("verify", "model", code=1)

    @pytest.mark.parametrize("model", ["huber", "ridge"])
    def test_of_regressions(self, answer, folder, model):
        change(folder, pay={"range": [20_000, 80_000]}, rich="drop")
        text = answer(*PAY, "--model", model, *TEST, "--epsilon", "4")
        explained = float(text.split("R2 ")[1].split()[0])
        truth = numbers(columns((folder / "test.csv").read_text())["pay"])
        errors = numbers(columns(answer("predict", "model", "test.csv"))["pay"]) - truth
        assert explained == pytest.approx(1 - np.mean(errors**2) / truth.var(), abs=6e-4)
        assert explained > 0.5
        assert "of the model in" in answer("verify", "model")
        assert "scores" in answer("predict", "model", "t.csv", "--scores", code=2)


@pytest.fixture(scope="module")
def rows():
    """A column of numbers and one of text that both tell the label, by themselves nearly."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, 3_000)
    side, label = (x + 0.3 * rng.normal(size=x.size) > 0 for _ in range(2))
    side, label = np.where(side, "right", "left"), np.where(label, "yes", "no")
    return [list(row) for row in zip(x.round(3), side, label, strict=True)]


class TestWhatIsSpeltOtherwise:
    @pytest.fixture
    def trained(self, rows, folder, capsys):
        def train(schema, *tested):
            (folder / "s.json").write_text(json.dumps(schema))
            write(folder / "data.csv", [list(RUNG), *rows])
            words = ["train", "data.csv", "--target", "y", "--epsilon", "20", "--schema", "s.json"]
            if tested:
                write(folder / "test.csv", [list(RUNG), *tested])
                words += TEST
            code, said = main(words), capsys.readouterr()
            assert (code == 0) == (folder / "model").exists()
            return code, plain(said.out + said.err)

        return train

    def test_labels_of_a_test_file(self, trained):
        code, said = trained(RUNG, [0.5, "right", "yes."], [-0.5, "left", "no."])
        assert code == 2
        assert "column 'y' of test.csv must be one of the values that the schema has" in said
        code, said = trained(RUNG, [0.9, "right", "yes"], [-0.9, "left", "no"], [9, "left", "yes."])
        assert code == 0
        assert "1 of them have an undeclared label, which counts as wrong" in said

    def test_columns_are_refused_where_public_and_counted_with_noise_where_private(
        self, trained, folder
    ):
        other = RUNG | {"side": {"values": ["Left", "Right"]}}
        code, said = trained(other, [0.9, "right", "yes"], [-0.9, "left", "no"])
        assert code == 2
        assert "column 'side' of test.csv must be one of the values that the schema has" in said
        code, said = trained(other)
        assert code == 0
        assert "100 % (a noisy count, give or take 0 %) of the rows have none of the values" in said
        assert "for the column 'side'" in said
        record = json.loads((folder / "model" / "certificate.json").read_text())
        assert "undeclared" in [one["kind"] for one in record["other_releases"]]
