"""A label that few rows have: what is said of the model, and how its rows are found."""

import csv
import io
import json

import numpy as np
import pytest

from lastiterate.cli import main
from lastiterate.cli.predict import area_under_roc, auc_text

CLASSES = ("no", "yes")


class TestArea:
    @pytest.mark.parametrize("ties", [False, True])
    def test_is_the_share_of_pairs_in_the_right_order(self, ties):
        rng = np.random.default_rng(0)
        scores = rng.normal(size=80).round(0 if ties else 9)
        positive = rng.random(80) < 0.2
        pairs = [
            1.0 if one > other else 0.5 * (one == other)
            for one in scores[positive]
            for other in scores[~positive]
        ]
        assert area_under_roc(scores, positive) == pytest.approx(np.mean(pairs), abs=1e-12)

    def test_needs_rows_of_both_kinds(self):
        assert np.isnan(area_under_roc(np.arange(3.0), np.zeros(3, dtype=bool)))
        assert auc_text(np.zeros((3, 1)), np.zeros(3, dtype=int), CLASSES, better=False) == ""

    def test_more_classes_are_averaged(self):
        outputs, truth = np.eye(3)[[0, 1, 2, 1]], np.array([0, 1, 2, -1])
        assert "AUC 1.000" in auc_text(outputs, truth, ("a", "b", "c"), better=True)


class TestWords:
    truth = np.arange(1_000) % 50 == 0

    def said(self, outputs, classes=CLASSES, truth=None):
        labels = (self.truth if truth is None else truth).astype(int)
        return auc_text(outputs.reshape(-1, 1), labels, classes, better=False)

    def test_a_ranking_is_no_nothing(self):
        said = self.said(np.random.default_rng(0).normal(size=1_000) + 2.0 * self.truth)
        assert "always predicting 'no', but the model ranks rows" in said
        assert "--positive yes --top 100" in said
        assert "--threshold" in said

    def test_the_rarer_label_may_be_the_first(self):
        said = self.said(2.0 * ~self.truth - 1.0, classes=("ill one", "well"), truth=~self.truth)
        assert "always predicting 'well'" in said
        assert "--positive 'ill one'" in said

    def test_chance_is_nothing(self):
        said = self.said(np.random.default_rng(0).normal(size=1_000))
        assert "Neither shows that the model learned anything" in said

    def test_the_wrong_order_is_no_ranking(self):
        assert "ranks" not in self.said(-1.0 * self.truth)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table in which one row of forty is ill, mostly the old, and a model of it."""
    home = tmp_path_factory.mktemp("rare")
    rng = np.random.default_rng(0)
    ages = rng.integers(18, 91, size=4_000)
    ill = rng.random(4_000) < 0.1 * np.clip((ages - 50) / 40, 0, 1)
    rows = [[k, age, "yes" if one else "no"] for k, (age, one) in enumerate(zip(ages, ill))]  # noqa: B905
    with (home / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["id", "age", "ill"], *rows])
    schema = {"id": "drop", "age": {"range": [18, 90], "bins": 6}, "ill": {"values": ["no", "yes"]}}
    (home / "s.json").write_text(json.dumps(schema))
    return home


def train(folder, out, *more):
    return main(
        [
            *("train", str(folder / "t.csv"), "--target", "ill", "--schema"),
            *(str(folder / "s.json"), "--epsilon", "4", "--out", str(folder / out), *more),
        ]
    )


def _copied(folder):
    """The same rows, as a file of their own."""
    public = folder / "public.csv"
    public.write_bytes((folder / "t.csv").read_bytes())
    return public


@pytest.fixture(scope="module")
def trained(folder):
    test = ["--test", str(_copied(folder)), "--test-is-public"]
    assert train(folder, "model", *test) == 0
    return folder


def predicted(folder, capsys, *more, model="model"):
    words = ["predict", str(folder / model), str(folder / "t.csv"), "--id", "id", *more]
    assert main(words) == 0
    lines = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    return {name: [line[k] for line in lines[1:]] for k, name in enumerate(lines[0])}


class TestCommands:
    def test_training_says_what_the_ranking_is_worth(self, folder, capsys):
        test = ["--test", str(_copied(folder)), "--test-is-public", "--out", str(folder / "other")]
        assert train(folder, "other", *test) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "the model ranks rows" in said
        shown = float(said.split("AUC ")[1].split()[0])
        found = predicted(folder, capsys, "--scores", model="other")
        truth = [line.endswith("yes") for line in (folder / "t.csv").read_text().split()[1:]]
        scores = np.array(found["score of yes"], dtype=float)
        assert shown == pytest.approx(area_under_roc(scores, np.array(truth)), abs=2e-3)

    def test_the_highest_first(self, trained, capsys):
        everyone = predicted(trained, capsys, "--proba")
        likely = np.array(everyone["probability of yes"], dtype=float)
        for positive, sign in ("yes", -1), ("no", 1):
            top = predicted(trained, capsys, "--top", "25", "--positive", positive)
            found = np.array(top["probability of yes"], dtype=float)
            assert len(found) == 25
            assert (np.diff(sign * found) >= 0).all()
            assert sorted(found) == sorted(np.sort(sign * likely)[:25] * sign)
            assert [int(row) - 1 for row in top["row"]] == list(map(int, top["id"]))
        every = predicted(trained, capsys, "--top", "9999999", "--positive", "no")
        assert len(every["id"]) == 4_000

    @pytest.mark.parametrize("threshold", [0.0, 0.05, 0.5])
    def test_a_threshold_decides(self, trained, capsys, threshold):
        found = predicted(
            trained, capsys, "--proba", "--threshold", str(threshold), "--positive", "yes"
        )
        likely = np.array(found["probability of yes"], dtype=float)
        assert [one == "yes" for one in found["ill"]] == (likely > threshold).tolist()
        other = predicted(
            trained, capsys, "--proba", "--threshold", str(threshold), "--positive", "no"
        )
        likely = np.array(other["probability of no"], dtype=float)
        assert [one == "no" for one in other["ill"]] == (likely > threshold).tolist()

    def test_the_target_itself_may_be_repeated(self, trained, capsys):
        words = ["predict", str(trained / "model"), str(trained / "t.csv"), "--id", "ill"]
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("ill,predicted ill\n")


class TestClassPrior:
    def test_is_part_of_what_is_verified_and_predicted(self, folder, capsys):
        assert train(folder, "prior", "--class-prior", "yes=0.025") == 0
        assert main(["verify", str(folder / "prior")]) == 0
        record = json.loads((folder / "prior" / "model.json").read_text())
        assert record["settings"]["class_prior"] == [["no", 0.975], ["yes", 0.025]]
        capsys.readouterr()
        found = predicted(folder, capsys, "--proba", model="prior")
        assert np.mean(np.array(found["probability of yes"], dtype=float)) < 0.1

    def test_another_prior_is_another_model(self, folder, capsys):
        from lastiterate.saved_model.model_file import digest

        assert train(folder, "moved", "--class-prior", "yes=0.025") == 0
        file = folder / "moved" / "model.json"
        record = json.loads(file.read_text())
        del record["digest"]
        settings = record["settings"] | {"class_prior": [["no", 0.5], ["yes", 0.5]]}
        for other in ({"settings": settings}, {"offset": [0.0]}):
            altered = record | other
            file.write_text(json.dumps(altered | {"digest": digest(altered)}))
            assert main(["verify", str(folder / "moved")]) == 1
        record["offset"] = [1.0, 1.0]
        file.write_text(json.dumps(record | {"digest": digest(record)}))
        capsys.readouterr()
        assert main(["predict", str(folder / "moved"), str(folder / "t.csv")]) == 2

    @pytest.mark.parametrize(
        "given",
        ["", "yes", "yes=", "yes=x", "yes=nan", "yes=0", "yes=1", "yes=-1", "yes=2", "maybe=0.1",
         "yes=0.1,no=0.1", "yes=0.1,yes=0.9", "yes=inf", "=0.1", "yes=0.1,", "0.1,0.9"],
    )  # fmt: skip
    def test_what_is_no_share(self, folder, capsys, given):
        assert train(folder, "never", "--class-prior", given) == 2
        said = capsys.readouterr().err
        assert "--class-prior must be label=share pairs" in said
        assert ("found 'maybe', which is none of the labels no, yes" in said) == ("maybe" in given)
        assert not (folder / "never").exists()

    def test_only_where_there_are_probabilities(self, folder, capsys):
        assert train(folder, "never", "--class-prior", "yes=0.1", "--model", "svc") == 2
        assert "only --model logistic" in capsys.readouterr().err


class TestRateMatching:
    def test_probabilities_are_right_on_average(self, folder, capsys):
        truth = np.mean([one.endswith("yes") for one in (folder / "t.csv").read_text().split()])
        means = {}
        for out, more in (("low", ()), ("right", ("--rate-matching", "0.3"))):
            assert train(folder, out, "--class-prior", f"yes={truth:.4f}", *more) == 0
            warned = "'yes' will have probabilities that are far too small" in (
                capsys.readouterr().err)  # fmt: skip
            assert warned == (out == "low")
            assert main(["verify", str(folder / out)]) == 0
            capsys.readouterr()
            found = predicted(folder, capsys, "--proba", model=out)
            means[out] = np.mean(np.array(found["probability of yes"], dtype=float)) / truth
        assert means["low"] < 0.7
        assert 0.7 < means["right"] < 1.3

    @pytest.mark.parametrize(
        "more, said",
        [
            (["1"], "--rate-matching must be a number in"),
            (["nan"], "--rate-matching must be a number in"),
            (["0.1", "--model", "svc"], "only --model logistic has probabilities"),
            (["0.1", "--key", "key"], "left out with --key"),
        ],
    )
    def test_what_it_cannot_be(self, folder, capsys, more, said):
        assert train(folder, "never", "--rate-matching", *more) == 2
        assert said in capsys.readouterr().err
        assert not (folder / "never").exists()

    def test_only_rare_labels_are_warned_of(self, folder, capsys):
        assert train(folder, "common", "--class-prior", "yes=0.3") == 0
        assert "far too small" not in capsys.readouterr().err


def test_a_private_score_comes_with_what_it_is_to_be_compared_with(folder, capsys):
    test = ["--test", str(folder / "t.csv"), "--test-epsilon", "0.5"]
    assert train(folder, "scored", *test, "--class-prior", "yes=0.025") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Always predicting 'no' would be right for 97.5%, by --class-prior, so this" in said
    assert train(folder, "unknown", *test) == 0
    assert "it is private here" in " ".join(capsys.readouterr().out.split())


def test_a_clip_norm_is_used_and_kept(folder):
    assert train(folder, "clipped", "--clip-norm", "0.5") == 0
    assert main(["verify", str(folder / "clipped")]) == 0
    certificate = json.loads((folder / "clipped" / "certificate.json").read_text())
    bound, constant = certificate["features"]["bound"], certificate["features"]["intercept"]
    assert certificate["objective"]["clip"] == pytest.approx(0.5 / np.hypot(bound, constant))


@pytest.mark.parametrize(
    "words, said",
    [
        (["--top", "0"], "--top must be a whole number"),
        (["--threshold", "1"], "--threshold must be a number in [0, 1)"),
        (["--threshold", "nan"], "--threshold must be a number in [0, 1)"),
        (["--positive", "maybe", "--top", "3"], "one of the labels no, yes"),
        (["--positive", "yes"], "left out without --top or --threshold"),
        (["--top", "3"], "--positive must be one of the labels no, yes"),
        (["--threshold", "0.1"], "--positive must be one of the labels no, yes"),
        (["--top", "3", "--threshold", "0.1", "--positive", "yes"], "--threshold must be left out"),
        (["--id", "age", "--id", "id"], "--id must be given once"),
        (["--id=age", "--id", "id"], "--id must be given once"),
    ],
)
def test_what_cannot_be_answered(trained, capsys, words, said):
    assert main(["predict", str(trained / "model"), str(trained / "t.csv"), *words]) == 2
    assert said in capsys.readouterr().err


def test_models_without_probabilities_rank_by_scores(folder, capsys):
    assert train(folder, "svc", "--model", "svc") == 0
    capsys.readouterr()
    top = predicted(folder, capsys, "--top", "5", "--positive", "yes", model="svc")
    assert list(top) == ["row", "id", "ill", "score of yes"]
    words = ["predict", str(folder / "svc"), str(folder / "t.csv"), "--threshold", "0.1"]
    assert main(words) == 2
    assert "--top ranks rows" in capsys.readouterr().err
