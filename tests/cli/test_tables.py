"""From a raw table to a verified model: schema, train, predict, verify, and what they refuse."""

import csv
import io
import json
import re

import numpy as np
import pytest

from lastiterate.certificate.fields import digest as certificate_digest
from lastiterate.certificate.verify import verify
from lastiterate.cli import main
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.saved_model.model_file import digest as model_digest

SCHEMA = {
    "id": "drop",
    "age": {"range": [18, 90]},
    "job": {"values": ["clerk", "nurse"]},
    "weight": {"range": [0, 400_000], "missing": 200_000, "indicator": True},
    "pay": "drop",
    "rich": {"values": ["no", "yes"]},
}
TOKEN = "Tr0ub4dor"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table of people in the folder where commands run, and its schema."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = []
    for k in range(2_000):
        age, job = int(rng.integers(18, 91)), str(rng.choice(["clerk", "nurse", "spy"]))
        pay = 20_000 + 500 * age + 10_000 * (job == "nurse") + int(rng.normal(0, 2_000))
        weight = "" if k % 10 == 0 else 180_000 + k
        rows.append([f"{TOKEN}-{k:03}", age, job, weight, pay, "yes" if pay > 50_000 else "no"])
    write(tmp_path / "t.csv", rows)
    write(tmp_path / "test.csv", rows[:500])
    (tmp_path / "s.json").write_text(json.dumps(SCHEMA))
    return tmp_path


def write(path, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([list(SCHEMA), *rows])


def change(folder, **entries):
    """The schema with other entries; None removes one."""
    changed = {name: rule for name, rule in (SCHEMA | entries).items() if rule is not None}
    (folder / "s.json").write_text(json.dumps(changed))


TRAIN = ["train", "t.csv", "--target", "rich", "--schema", "s.json", "--epsilon", "2"]
PAY = ["train", "t.csv", "--target", "pay", "--schema", "s.json", "--task", "regression"]


def answer(capsys, *words, code=0):
    assert main(words) == code
    said = capsys.readouterr()
    assert TOKEN not in said.err
    return said.err if code else said.out


def columns(text):
    lines = list(csv.reader(io.StringIO(text)))
    return {name: [line[k] for line in lines[1:]] for k, name in enumerate(lines[0])}


class TestSchema:
    def test_has_names_and_kinds_and_no_cell(self, capsys, folder):
        text = answer(capsys, "schema", "t.csv", "--target", "rich")
        kinds = {name: next(iter(rule)) for name, rule in json.loads(text).items()}
        assert kinds == {
            "id": "values", "age": "range", "job": "values", "weight": "range", "pay": "range",
            "rich": "values",
        }  # fmt: skip
        for cell in (TOKEN, "nurse", "yes", "180001"):
            assert cell not in text
        number = answer(capsys, "schema", "t.csv", "--target", "pay", "--task", "regression")
        assert json.loads(number)["pay"] == {"range": [None, None]}

    def test_must_be_filled_in(self, capsys, folder):
        answer(capsys, "schema", "t.csv", "--target", "rich", "--out", "new.json")
        text = answer(capsys, *TRAIN[:5], "new.json", code=2)
        assert "empty ranges or values of id, age, job, weight, pay, rich" in text
        assert "a new file; add --force" in answer(
            capsys, "schema", "t.csv", "--out", "new.json", code=2
        )
        answer(capsys, "schema", "t.csv", "--out", "new.json", "--force")

    @pytest.mark.parametrize("header", [f"{TOKEN},nurse", f"{TOKEN},7"])
    def test_a_file_without_names_is_refused(self, capsys, folder, header):
        (folder / "t.csv").write_text(f"{header}\nB,nurse\nC,clerk\n")
        assert "the first line must be the names" in answer(capsys, "schema", "t.csv", code=2)

    def test_a_target_that_is_no_column(self, capsys, folder):
        text = answer(capsys, "schema", "t.csv", "--target", "income", code=2)
        assert "one of the 6 names" in text


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
            ({"size": "drop"}, "about columns of the table"),
        ],
    )
    def test_schemas(self, capsys, folder, entries, said):
        change(folder, **entries)
        text = answer(capsys, *TRAIN, code=2)
        assert re.search(said, text), text
        assert not (folder / "model").exists()

    def test_without_a_schema_it_says_how_to_begin_one(self, capsys, folder):
        text = answer(capsys, "train", "t.csv", "--target", "rich", code=2)
        assert "`lastiterate schema t.csv --target rich --out schema.json`" in text

    def test_an_empty_target(self, capsys, folder):
        text = (folder / "t.csv").read_text()
        (folder / "t.csv").write_text(text.replace(",yes", ",", 1))
        said = answer(capsys, *TRAIN, code=2)
        assert "target 'rich' must be a label in every row" in said
        assert "an empty cell in row " in said
        change(folder, rich={"values": ["no", "yes"], "missing": "yes"})
        answer(capsys, *TRAIN)

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
            (["--test", "test.csv", "--test-is-public", "--test-epsilon", ".1"], "found both"),
            (["--test-is-public"], "--test must be a file"),
            (["--test", "test.csv", "--test-epsilon", "2"], "--test-epsilon must be"),
            (["--test", "none.csv", "--test-is-public"], "No such file"),
        ],
    )
    def test_flags(self, capsys, folder, words, said):
        assert said in answer(capsys, *TRAIN, *words, code=2)
        assert not (folder / "model").exists()

    def test_regression_needs_one_range(self, capsys, folder):
        change(folder, pay=None)
        assert "the target's range must be declared" in answer(capsys, *PAY, code=2)
        change(folder, pay={"range": [0, 90_000]})
        words = [*PAY, "--target-range", "0", "9"]
        assert "found both" in answer(capsys, *words, code=2)

    def test_nothing_is_overwritten_in_silence(self, capsys, folder):
        answer(capsys, *TRAIN)
        before = (folder / "model" / "model.json").read_text()
        assert "add --force to replace" in answer(capsys, *TRAIN, code=2)
        assert (folder / "model" / "model.json").read_text() == before
        answer(capsys, *TRAIN, "--force")
        assert (folder / "model" / "model.json").read_text() != before
        words = ["predict", "model", "t.csv", "--out", "s.json"]
        assert "must be a new file" in answer(capsys, *words, code=2)
        assert json.loads((folder / "s.json").read_text()) == SCHEMA
        page = [*TRAIN, "--out", "other", "--html", "s.json"]
        assert "never replaced" in answer(capsys, *page, code=2)


class TestPredicting:
    def test_probabilities_scores_and_ids(self, capsys, folder):
        answer(capsys, *TRAIN)
        words = ["predict", "model", "t.csv", "--proba", "--scores", "--id", "id"]
        found = columns(answer(capsys, *words))
        assert list(found) == [
            "id", "rich", "probability of no", "probability of yes", "score of yes",
        ]  # fmt: skip
        assert found["id"][7] == f"{TOKEN}-007"
        yes = np.array(found["probability of yes"], dtype=float)
        score = np.array(found["score of yes"], dtype=float)
        assert yes == pytest.approx(1 / (1 + np.exp(-score)), abs=1e-5)
        assert np.array(found["probability of no"], dtype=float) == pytest.approx(1 - yes, abs=1e-5)
        assert [label == "yes" for label in found["rich"]] == (score > 0).tolist()
        truth = columns((folder / "t.csv").read_text())["rich"]
        assert np.mean(np.array(found["rich"]) == truth) > 0.85

    def test_an_id_that_is_a_feature_is_as_it_was_written(self, capsys, folder):
        answer(capsys, *TRAIN)
        (folder / "new.csv").write_text("age,job,weight\n042,clerk,\n43.50,clerk,1\n")
        found = columns(answer(capsys, "predict", "model", "new.csv", "--id", "age"))
        assert found["age"] == ["042", "43.50"]

    def test_svc(self, capsys, folder):
        answer(capsys, *TRAIN, "--model", "svc")
        assert "score of yes" in answer(capsys, "predict", "model", "t.csv", "--scores")
        text = answer(capsys, "predict", "model", "t.csv", "--proba", code=2)
        assert "only --model logistic has probabilities" in text

    @pytest.mark.parametrize("model", ["huber", "ridge"])
    def test_regression(self, capsys, folder, model):
        change(folder, pay={"range": [20_000, 80_000]}, rich="drop")
        words = ["--model", model, "--test", "test.csv", "--test-is-public", "--epsilon", "4"]
        text = answer(capsys, *PAY, *words)
        explained = float(text.split("R2 ")[1].split()[0])
        truth = np.array(columns((folder / "test.csv").read_text())["pay"], dtype=float)
        found = columns(answer(capsys, "predict", "model", "test.csv"))["pay"]
        errors = np.array(found, dtype=float) - truth
        assert explained == pytest.approx(1 - np.mean(errors**2) / truth.var(), abs=6e-4)
        assert explained > 0.5
        assert "of the model in" in answer(capsys, "verify", "model")
        assert "scores" in answer(capsys, "predict", "model", "t.csv", "--scores", code=2)

    def test_more_classes(self, capsys, folder):
        change(folder, job={"values": ["clerk", "nurse", "spy"]}, pay={"range": [0, 90_000]})
        words = ["train", "t.csv", "--target", "job", "--schema", "s.json", "--epsilon", "2"]
        answer(capsys, *words)
        found = columns(answer(capsys, "predict", "model", "t.csv", "--proba"))
        sums = sum(np.array(found[f"probability of {one}"], dtype=float)
                   for one in ("clerk", "nurse", "spy"))  # fmt: skip
        assert sums == pytest.approx(1.0, abs=1e-5)

    def test_a_mapped_file_is_used_and_removed(self, capsys, folder):
        answer(capsys, *TRAIN, "--mapped", "rows.f4")
        assert not (folder / "rows.f4").exists()
        text = (folder / "model" / "certificate.json").read_text()
        assert json.loads(text)["run"]["batches"]["kind"] == "ShuffledBlocksOnce"
        answer(capsys, "verify", "model")


class TestScores:
    def test_on_public_rows(self, capsys, folder):
        text = answer(capsys, *TRAIN, "--test", "test.csv", "--test-is-public")
        line = next(one for one in text.splitlines() if one.startswith("accuracy"))
        truth = np.array(columns((folder / "test.csv").read_text())["rich"])
        found = np.array(columns(answer(capsys, "predict", "model", "test.csv"))["rich"])
        assert f"{np.mean(found == truth):.1%} (" in line
        frequent = max(np.mean(truth == "no"), np.mean(truth == "yes"))
        assert f"most frequent label: {frequent:.1%})" in line
        certificate = json.loads((folder / "model" / "certificate.json").read_text())
        assert [one["kind"] for one in certificate["other_releases"]] == [
            "mean",
            "outliers",
            "undeclared",
        ]

    @pytest.mark.parametrize("words", [TRAIN, [*PAY, "--epsilon", "2"]])
    def test_on_private_rows_the_certificate_includes_them(self, capsys, folder, words):
        change(folder, pay={"range": [20_000, 80_000]})
        text = answer(capsys, *words, "--test", "test.csv", "--test-epsilon", "0.5")
        assert "which the guarantee includes" in " ".join(text.split())
        file = folder / "model" / "certificate.json"
        assert 1.98 < verify(file).epsilon(1e-5) <= 2.0
        record = json.loads(file.read_text())
        release = record["other_releases"][-1]
        assert release["kind"] == ("accuracy" if words is TRAIN else "errors")
        assert 0.0 <= release["published (noisy)"] <= 1.0
        assert "holds: epsilon = " in answer(capsys, "verify", "model")
        release["noise_std"] /= 2
        file.write_text(json.dumps(record | {"digest": certificate_digest(record)}))
        assert "does not hold" in answer(capsys, "verify", "model", code=1)


class TestVerifying:
    def test_a_folder(self, capsys, folder):
        answer(capsys, *TRAIN)
        assert "of the model in model/model.json" in answer(capsys, "verify", "model")
        (folder / "model" / "model.json").unlink()
        assert "not checked: which model" in answer(capsys, "verify", "model")

    def test_an_altered_model_does_not_hold(self, capsys, folder):
        answer(capsys, *TRAIN)
        file = folder / "model" / "model.json"
        file.write_text(file.read_text().replace('"age"', '"ages"'))
        assert "altered since" in answer(capsys, "verify", "model", code=1)
        assert "altered since" in answer(capsys, "predict", "model", "t.csv", code=2)

    @pytest.mark.parametrize(
        "name, change",
        [
            ("classes", lambda classes: classes[::-1]),
            ("target", lambda _: "poor"),
            ("columns", lambda names: [names[2], names[1], names[0]]),
            ("schema", lambda schema: schema | {"age": {"range": [18, 91]}}),
            ("model", lambda _: "svc"),
            ("feature_bound", lambda bound: bound * 2),
        ],
    )
    def test_names_ranges_and_values_are_bound(self, capsys, folder, name, change):
        """Even if the model's own digest is forged."""
        answer(capsys, *TRAIN)
        file = folder / "model" / "model.json"
        record = json.loads(file.read_text())
        del record["digest"]
        record[name] = change(record[name])
        record["labels"]["values"] = record["classes"]
        file.write_text(json.dumps(record | {"digest": model_digest(record)}))
        text = answer(capsys, "verify", "model", code=1)
        assert "a model of other columns, ranges, values or classes" in text

    def test_a_certificate_without_names_is_of_no_such_model(self, capsys, folder):
        answer(capsys, *TRAIN)
        file = folder / "model" / "certificate.json"
        record = json.loads(file.read_text())
        for encoding, said in (
            ("none: rows were given as numbers, without names", "other columns, ranges"),
            ("anything", "what its model's numbers stand for is unknown"),
        ):
            record["encoding"] = encoding
            file.write_text(json.dumps(record | {"digest": certificate_digest(record)}))
            assert said in answer(capsys, "verify", "model", code=1)


def test_the_report_as_a_page(capsys, folder):
    titled = ["--html", "page.html", "--title", "Pay of 2024"]
    assert "page.html" in answer(capsys, *TRAIN, *titled)
    assert "<h1>Pay of 2024</h1>" in (folder / "page.html").read_text()
    assert main([*TRAIN, "--out", "other", "--title", "Pay"]) == 2
    assert "--title must be left out without --html" in capsys.readouterr().err


def test_an_audit_goes_on(capsys, folder):
    """And says how many looks there were, and how many runs would tell something."""
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = PrivateLogisticRegression(counting=0.0, epochs=2).fit(X, X[:, 0] > 0)
    (folder / "c.json").write_text(model.certificate_)
    words = ["audit", "--certificate", "c.json", "--record", "audit.jsonl", "--runs"]
    first = answer(capsys, *words, "20")
    assert "no lower bound above 0 from these runs" in first
    assert "would be refuted by" in first
    assert "looks" not in first
    kept = (folder / "audit.jsonl").read_text().splitlines()
    second = answer(capsys, *words, "25")
    assert "2 looks at this record, after 20, 25 runs" in second
    lines = (folder / "audit.jsonl").read_text().splitlines()
    assert lines[: len(kept)] == kept
    made = [json.loads(line) for line in lines[len(kept) :]]
    assert sum(len(one["outputs"]) for one in made if "outputs" in one) == 10
    assert answer(capsys, *words, "25") == second
    (folder / "other.json").write_text(model.certificate_ + "\n")
    other = ["audit", "--certificate", "other.json", "--record", "audit.jsonl", "--runs", "20"]
    assert "of another certificate" in answer(capsys, *other, code=2)
