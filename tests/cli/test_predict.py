"""predict and score: probabilities, the rows that most likely have a rare label, and AUC."""

import json

import numpy as np
import pytest

from lastiterate.cli import main
from lastiterate.cli.model_score import area_under_roc, auc_text
from lastiterate.saved_model.model_file import digest

from .people import TOKEN, TRAIN, change, columns, numbers, write

ILL = ["train", "t.csv", "--target", "ill", "--schema", "s.json", "--epsilon", "4"]


class TestPredicting:
    def test_probabilities_scores_and_ids(self, answer, folder):
        words = ["predict", "trained", "t.csv", "--proba", "--scores", "--id", "id"]
        text = answer(*words)
        found = columns(text)
        assert list(found) == [
            "id", "rich", "probability of no", "probability of yes", "score of yes",
        ]  # fmt: skip
        assert found["id"][7] == f"{TOKEN}-007"
        yes, score = numbers(found["probability of yes"]), numbers(found["score of yes"])
        assert yes == pytest.approx(1 / (1 + np.exp(-score)), abs=1e-5)
        assert numbers(found["probability of no"]) == pytest.approx(1 - yes, abs=1e-5)
        assert [label == "yes" for label in found["rich"]] == (score > 0).tolist()
        truth = columns((folder / "t.csv").read_text())["rich"]
        assert np.mean(np.array(found["rich"]) == truth) > 0.85
        answer(*words, "--out", "predicted.csv")
        assert (folder / "predicted.csv").read_bytes().decode() == text
        assert answer("predict", "trained", "t.csv", "--id", "rich").startswith(
            "rich,predicted rich\n"
        )

    def test_an_id_that_is_a_feature_is_as_it_was_written(self, answer, folder):
        (folder / "new.csv").write_text("age,job,weight\n042,clerk,\n43.50,clerk,1\n")
        found = columns(answer("predict", "trained", "new.csv", "--id", "age"))
        assert found["age"] == ["042", "43.50"]

    def test_without_probabilities_rows_are_ranked_by_scores(self, answer, folder):
        answer(*TRAIN, "--model", "svc")
        top = columns(answer("predict", "model", "t.csv", "--top", "5", "--positive", "yes"))
        assert list(top) == ["row", "rich", "score of yes"]
        words = ["predict", "model", "t.csv"]
        text = answer(*words, "--proba", code=2)
        assert "only --model logistic has probabilities" in text
        assert "--top ranks rows" in answer(*words, "--threshold", "0.1", code=2)

    def test_more_classes(self, answer, folder):
        jobs = ["clerk", "nurse", "spy"]
        change(folder, job={"values": jobs}, pay={"range": [0, 90_000]})
        answer("train", "t.csv", "--target", "job", "--schema", "s.json", "--epsilon", "2")
        found = columns(answer("predict", "model", "t.csv", "--proba"))
        sums = sum(numbers(found[f"probability of {one}"]) for one in jobs)
        assert sums == pytest.approx(1.0, abs=1e-5)

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
            (["--top", "3", "--threshold", "0.1", "--positive", "yes"],
             "--threshold must be left out"),
            (["--id", "age", "--id", "id"], "--id must be given once"),
            (["--id=age", "--id", "id"], "--id must be given once"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_answered(self, answer, folder, words, said):
        assert said in answer("predict", "trained", "t.csv", *words, code=2)


class TestArea:
    @pytest.mark.parametrize("ties", [False, True])
    def test_is_the_share_of_pairs_in_the_right_order(self, ties):
        rng = np.random.default_rng(0)
        scores, positive = rng.normal(size=80).round(0 if ties else 9), rng.random(80) < 0.2
        above = scores[positive][:, None] - scores[~positive]
        share = np.mean((above > 0) + 0.5 * (above == 0))
        assert area_under_roc(scores, positive) == pytest.approx(share, abs=1e-12)

    def test_needs_rows_of_both_kinds_and_is_averaged_over_more(self):
        assert np.isnan(area_under_roc(np.arange(3.0), np.zeros(3, dtype=bool)))
        nothing = auc_text(np.zeros((3, 1)), np.zeros(3, dtype=int), ("no", "yes"), better=False)
        assert nothing == ""
        outputs, truth = np.eye(3)[[0, 1, 2, 1]], np.array([0, 1, 2, -1])
        assert "AUC 1.000" in auc_text(outputs, truth, ("a", "b", "c"), better=True)

    TRUTH = np.arange(1_000) % 50 == 0
    NOISE = np.random.default_rng(0).normal(size=1_000)

    @pytest.mark.parametrize(
        "outputs, classes, truth, told",
        [
            (NOISE + 2.0 * TRUTH, ("no", "yes"), TRUTH,
             ["always predicting 'no', but the model ranks rows", "--positive yes --top 100"]),
            # The rarer label may be the first.
            (2.0 * ~TRUTH - 1.0, ("ill one", "well"), ~TRUTH,
             ["always predicting 'well'", "--positive 'ill one'"]),
            (NOISE, ("no", "yes"), TRUTH, ["Neither shows that the model learned anything"]),
            # The wrong order is no ranking.
            (-1.0 * TRUTH, ("no", "yes"), TRUTH, ["Neither shows"]),
        ],
    )  # fmt: skip
    def test_says_what_a_ranking_is_worth(self, outputs, classes, truth, told):
        said = auc_text(outputs.reshape(-1, 1), truth.astype(int), classes, better=False)
        assert all(words in said for words in told)
        assert ("ranks" in said) == ("Neither" not in said)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    home, rng = tmp_path_factory.mktemp("rare"), np.random.default_rng(0)
    ages = rng.integers(18, 91, size=4_000)
    ill = np.where(rng.random(4_000) < 0.1 * np.clip((ages - 50) / 40, 0, 1), "yes", "no")
    rows = [[k, age, one] for k, (age, one) in enumerate(zip(ages, ill, strict=True))]
    for name in ("t.csv", "public.csv"):
        write(home / name, [["id", "age", "ill"], *rows])
    schema = {"id": "drop", "age": {"range": [18, 90], "bins": 6},
              "ill": {"values": ["no", "yes"]}}  # fmt: skip
    (home / "s.json").write_text(json.dumps(schema))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)
        assert main([*ILL, "--out", "plain"]) == 0
    return home


class TestRareLabels:
    """One row of forty is ill, mostly the old."""

    @pytest.fixture
    def train(self, home, capsys, monkeypatch):
        """Trains, and says what was said; the probabilities of the model beside it."""
        monkeypatch.chdir(home)

        def trained(*words):
            assert main([*ILL, "--out", "m", "--force", *words]) == 0
            assert main(["verify", "m"]) == 0
            said = capsys.readouterr()
            return " ".join((said.out + said.err).split())

        return trained

    @pytest.fixture
    def predicted(self, home, answer, monkeypatch):
        monkeypatch.chdir(home)
        return lambda *words, model="plain": columns(
            answer("predict", model, "t.csv", "--id", "id", *words)
        )

    def test_training_says_what_the_ranking_is_worth(self, train, predicted, home):
        said = train("--test", "public.csv", "--test-is-public")
        assert "the model ranks rows" in said
        truth = np.array(
            [line.endswith("yes") for line in (home / "t.csv").read_text().split()[1:]]
        )
        scores = numbers(predicted("--scores", model="m")["score of yes"])
        shown = float(said.split("AUC ")[1].split()[0])
        assert shown == pytest.approx(area_under_roc(scores, truth), abs=2e-3)

    def test_the_highest_first(self, predicted):
        likely = numbers(predicted("--proba")["probability of yes"])
        for positive, sign in ("yes", -1), ("no", 1):
            top = predicted("--top", "25", "--positive", positive)
            found = numbers(top["probability of yes"])
            assert len(found) == 25
            assert (np.diff(sign * found) >= 0).all()
            assert sorted(found) == sorted(np.sort(sign * likely)[:25] * sign)
            assert [int(row) - 1 for row in top["row"]] == list(map(int, top["id"]))
        assert len(predicted("--top", "9999999", "--positive", "no")["id"]) == 4_000

    @pytest.mark.parametrize("threshold", [0.0, 0.05, 0.5])
    @pytest.mark.parametrize("positive", ["yes", "no"])
    def test_a_threshold_decides(self, predicted, threshold, positive):
        found = predicted("--proba", "--threshold", str(threshold), "--positive", positive)
        likely = numbers(found[f"probability of {positive}"])
        assert [one == positive for one in found["ill"]] == (likely > threshold).tolist()

    def test_a_class_prior_is_part_of_what_is_verified_and_predicted(
        self, train, predicted, home, answer
    ):
        said = train("--class-prior", "yes=0.025")
        assert "'yes' will have probabilities that are far too small" in said
        file = home / "m" / "model.json"
        record = json.loads(file.read_text())
        assert record["settings"]["class_prior"] == [["no", 0.975], ["yes", 0.025]]
        assert np.mean(numbers(predicted("--proba", model="m")["probability of yes"])) < 0.1
        del record["digest"]
        settings = record["settings"] | {"class_prior": [["no", 0.5], ["yes", 0.5]]}
        for other in ({"settings": settings}, {"offset": [0.0]}):
            file.write_text(json.dumps(record | other | {"digest": digest(record | other)}))
            answer("verify", "m", code=1)
        record["offset"] = [1.0, 1.0]
        file.write_text(json.dumps(record | {"digest": digest(record)}))
        answer("predict", "m", "t.csv", code=2)

    def test_rate_matching_makes_probabilities_right_on_average(self, train, predicted, home):
        truth = np.mean([line.endswith("yes") for line in (home / "t.csv").read_text().split()])
        for more, low, high in (([], 0.0, 0.7), (["--rate-matching", "0.3"], 0.7, 1.3)):
            said = train("--class-prior", f"yes={truth:.4f}", *more)
            assert ("probabilities that are far too small" in said) == (not more)
            likely = numbers(predicted("--proba", model="m")["probability of yes"])
            assert low < np.mean(likely) / truth < high
        # Only rare labels are warned of.
        assert "far too small" not in train("--class-prior", "yes=0.3")

    def test_a_private_score_comes_with_what_it_is_to_be_compared_with(self, train):
        said = train("--test", "t.csv", "--test-epsilon", "0.5", "--class-prior", "yes=0.025")
        assert "Always predicting 'no' would be right for 97.5%, by --class-prior, so this" in said
