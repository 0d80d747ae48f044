"""The command: what it prints, what it writes, and how it refuses."""

import errno
import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.progress import Progress

import lastiterate as li
from lastiterate.certificate.fields import digest
from lastiterate.certificate.verify import verify
from lastiterate.cli import main
from lastiterate.errors import PrivacyWarning
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.saved_model.model_file import digest as model_digest
from lastiterate.train.noise import Randomness

RUN = [
    "--examples", "60000", "--batch-size", "1500", "--epochs", "50", "--step-size", "0.05",
    "--noise-std", "0.01", "--sensitivity", "10", "--smoothness", "32.502",
    "--strong-convexity", "0.002",
]  # fmt: skip


def said(capsys, *arguments, code=0):
    assert main(arguments) == code
    printed = capsys.readouterr()
    return printed.err if code else printed.out


class TestUnknownWords:
    """Each is answered with those that there are, or the one that is meant."""

    @pytest.mark.parametrize(
        "words, meant",
        [
            (["plot"], "plot takes one of epsilon-by-steps"),
            (["plot", "histogram"], "plot takes one of epsilon-by-steps"),
            (["reproduce", "bsa-tabel-3"], "did you mean 'bsa-table-3'"),
            (["account", *RUN, "--batches", "shuffled"], "DataLoader(shuffle=True)"),
            (["account", *RUN, "--batches", "cylic"], "did you mean 'cyclic'"),
        ],
    )
    def test_is_said(self, capsys, words, meant):
        assert meant in said(capsys, *words, code=2)


class TestBounds:
    def test_an_id_is_explained_without_a_flag(self, capsys):
        explained = said(capsys, "bounds", "--explain", "random-order/shuffled")
        assert said(capsys, "bounds", "random-order/shuffled") == explained

    def test_one_id_at_a_time(self, capsys):
        ids = ("random-order/shuffled", "--explain", "random-order/shuffled")
        assert "--explain must be left out where an ID is given" in said(
            capsys, "bounds", *ids, code=2
        )


class TestTooLittleMemory:
    """One line, and no traceback, wherever memory ends."""

    @pytest.mark.parametrize(
        "error", [MemoryError("SECRET"), OSError(errno.ENOMEM, "Cannot allocate memory")]
    )
    @pytest.mark.parametrize("options, remedy", [([], True), (["--mapped", "scratch"], False)])
    def test_training_names_the_option(self, capsys, monkeypatch, error, options, remedy):
        def fail(*_, **__):
            raise error

        monkeypatch.setattr("lastiterate.cli.train.open_table", fail)
        command = ("train", "people.csv", "--target", "income", *options)
        text = said(capsys, *command, code=2)
        assert text.count("\n") == 1
        assert "must fit into memory" in text
        assert ("add --mapped FOLDER" in text) == remedy
        assert "SECRET" not in text
        assert "Errno" not in text

    def test_others_do_not(self, capsys, monkeypatch):
        def fail(*_, **__):
            raise MemoryError

        monkeypatch.setattr(li, "account", fail)
        text = said(capsys, "account", *RUN, code=2)
        assert "must fit into memory" in text
        assert "--mapped" not in text


class TestAccounting:
    def test_account(self, capsys):
        assert "3.4073" in said(capsys, "account", *RUN)

    def test_account_as_json(self, capsys):
        record = json.loads(said(capsys, "account", *RUN, "--json"))
        assert record["bound"] == "random-order/shuffled"
        assert record["epsilon"] == pytest.approx(3.4073, abs=2e-4)
        assert li.TrainingRun.from_json(json.dumps(record["run"])).steps == 2_000

    @pytest.mark.parametrize("kind", ["toml", "json"])
    def test_a_run_file_is_the_flags(self, capsys, tmp_path, kind):
        record = json.loads(said(capsys, "account", *RUN, "--json"))
        run = li.TrainingRun.from_json(json.dumps(record["run"]))
        file = tmp_path / f"run.{kind}"
        file.write_text(run.to_toml() if kind == "toml" else run.to_json())
        assert json.loads(said(capsys, "account", str(file), "--json")) == record

    def test_dp_sgd(self, capsys):
        text = said(
            capsys, "account", "--examples", "1000", "--batch-size", "20", "--steps", "200",
            "--step-size", "0.1", "--clip-norm", "1", "--noise-multiplier", "1.3",
            "--batches", "poisson", "--adjacency", "zero-out", "--non-convex",
        )  # fmt: skip
        assert "composition/sampled <- used" in text

    def test_calibrate(self, capsys):
        text = said(capsys, "calibrate", *RUN, "--epsilon", "1")
        assert "noise-std = 0.02899" in text

    @pytest.mark.parametrize("over", ["release-noise-std", "release_noise_std"])
    def test_calibrate_over_an_option_or_its_python_name(self, capsys, over):
        run = [*RUN, "--batches", "cyclic"]
        text = said(capsys, "calibrate", *run, "--epsilon", "1", "--over", over)
        assert "\nnoise-std = 0.01\n" in text
        assert float(re.search(r"release-noise-std = (\S+)", text)[1]) > 0.0

    def test_what_cannot_be_calibrated(self, capsys):
        assert main(["calibrate", *RUN, "--epsilon", "1", "--over", "clip-norm"]) == 2
        assert "--over must be one of 'noise-std'" in capsys.readouterr().err

    def test_compare(self, capsys):
        run = [*RUN, "--batches", "cyclic"]
        rows = json.loads(said(capsys, "compare", *run, "--json"))["epsilon"]
        assert list(rows) == ["200", "400", "1000", "2000", "4000", "10000", "20000", "200000"]
        printed = said(capsys, "compare", *run).splitlines()
        assert max(map(len, printed)) <= 100
        for line in filter(None, printed[5:]):
            steps, *epsilons = line.replace(",", "").split()
            for shown, exact in zip(epsilons, rows[steps].values(), strict=True):
                assert exact <= float(shown) <= exact + 1e-4

    def test_what_has_no_finite_epsilon_is_text_in_json(self, capsys):
        text = said(
            capsys, "account", "--clip-norm", "1", "--noise-multiplier", "1.1", "--batch-size",
            "256", "--epochs", "10", "--examples", "60000", "--batches", "shuffled-once",
            "--step-size", "0.1", "--json",
        )  # fmt: skip
        record = json.loads(text, parse_constant=pytest.fail)
        assert "inf" in record["all"].values()
        assert record["epsilon"] > 0.0

    def test_the_version(self, capsys):
        assert said(capsys, "--version") == f"lastiterate {li.__version__}\n"

    def test_bounds(self, capsys):
        assert "fixed-order/convex" in said(capsys, "bounds")
        text = said(capsys, "bounds", "--explain", "random-order/shuffled/average-once")
        assert "a batch order that stays secret" in text
        assert ":math:" not in text

    def test_no_answer_says_what_would_help(self, capsys):
        silent = [*RUN, "--noise-std", "0", "--releases", "every-iterate"]
        silent += ["--release-noise-std", "1"]
        assert "noise" in said(capsys, "account", *silent, code=1)

    def test_reproduce(self, capsys):
        assert "bsa-table-3" in said(capsys, "reproduce")

    def test_without_arguments_it_helps(self, capsys):
        assert "Commands:" in said(capsys)


PEOPLE = {
    "age": {"range": [18, 90]},
    "job": {"values": ["a", "b"]},
    "income": {"values": ["<=50K", ">50K"]},
}


@pytest.fixture
def people(tmp_path):
    """A table with numbers, text, and an outcome; its schema."""
    rng = np.random.default_rng(0)
    age, job = rng.integers(18, 90, 3000), rng.choice(["a", "b"], 3000)
    rich = np.where(age + 20 * (job == "a") + rng.normal(0, 10, 3000) > 60, ">50K", "<=50K")
    lines = [f"{x},{j},{y}" for x, j, y in zip(age, job, rich, strict=True)]
    data, schema = tmp_path / "people.csv", tmp_path / "people.json"
    data.write_text("age,job,income\n" + "\n".join(lines) + "\n")
    schema.write_text(json.dumps(PEOPLE))
    return data, schema


class TestTraining:
    def train(self, capsys, people, tmp_path, *more):
        data, schema = people
        return said(
            capsys, "train", str(data), "--target", "income", "--epsilon", "2",
            "--schema", str(schema), "--out", str(tmp_path / "model"), *more,
        )  # fmt: skip

    def test_trains_predicts_and_verifies(self, capsys, people, tmp_path):
        assert "You may publish:" in self.train(capsys, people, tmp_path)
        model, certificate = (tmp_path / "model" / f"{x}.json" for x in ("model", "certificate"))
        predicted = said(capsys, "predict", str(model), str(people[0])).splitlines()
        truth = [line.split(",")[2] for line in people[0].read_text().splitlines()]
        assert predicted[0] == "income"
        assert np.mean([a == b for a, b in zip(predicted, truth, strict=True)]) > 0.8
        file = tmp_path / "predicted.csv"
        said(capsys, "predict", str(model), str(people[0]), "--out", str(file))
        assert file.read_bytes().decode().split("\n") == [*predicted, ""]
        text = said(capsys, "verify", str(certificate), "--model", str(model))
        assert "holds: epsilon = 2.0000 at delta = 1e-05" in text

    def test_the_verdict_and_what_may_be_published_come_first(self, capsys, people, tmp_path):
        lines = self.train(capsys, people, tmp_path).splitlines()
        assert len(lines) < 15
        assert lines[0].startswith("certified: epsilon = 2.0000 at delta = 1e-05, one example rep")
        listed = [line.split()[0] for line in lines if line.startswith("    ")]
        written = [tmp_path / "model" / name for name in ("model.json", "certificate.json")]
        assert listed == [str(path) for path in written]
        assert all(path.exists() for path in written)
        text = " ".join(lines)
        assert "a noisy mean and mean squared norm of the clipped rows" in text
        assert "Treated as public: the column names and the schema, the number of rows." in text
        assert "<- used" not in text

    def test_the_whole_report_on_request(self, capsys, people, tmp_path):
        trained = self.train(capsys, people, tmp_path, "--report")
        verified = said(capsys, "verify", str(tmp_path / "model"), "--report")
        for text in (trained, verified):
            assert "<- used" in text
            assert "The trainer enforced that" in text
        assert "<- used" not in said(capsys, "verify", str(tmp_path / "model"))

    def test_public_rows_and_secrets_are_named(self, capsys, people, tmp_path):
        (tmp_path / "key").write_bytes(bytes(range(32)))
        other = tmp_path / "other.csv"
        other.write_bytes(people[0].read_bytes())
        more = ["--test", str(other), "--test-is-public", "--key", str(tmp_path / "key")]
        text = " ".join(self.train(capsys, people, tmp_path, *more).split())
        assert "the number of rows, the rows of other.csv." in text
        assert f"Keep secret: {tmp_path / 'key'}." in text

    def test_private_rows_are_not_public_rows(self, capsys, people, tmp_path):
        words = ["train", str(people[0]), "--target", "income", "--schema", str(people[1])]
        words += ["--test", str(people[0]), "--test-is-public", "--out", str(tmp_path / "no")]
        assert "whose rows are private" in said(capsys, *words, code=2)

    def test_verify_prints_no_less_than_is_certified(self, capsys, people, tmp_path):
        self.train(capsys, people, tmp_path, "--epsilon", "1.2345612")
        certificate = tmp_path / "model" / "certificate.json"
        stated = json.loads(certificate.read_text())["guarantee"]["epsilon"]
        printed = said(capsys, "verify", str(certificate)).split("epsilon = ")[1].split()[0]
        assert stated <= float(printed) <= stated + 1e-4

    def test_progress_is_shown_on_a_terminal_only(self, capsys, people, tmp_path, monkeypatch):
        self.train(capsys, people, tmp_path)
        assert capsys.readouterr().err == ""
        drawn = []
        monkeypatch.setattr(Progress, "add_task", lambda bar, what, **_: drawn.append(what))
        monkeypatch.setattr(Progress, "update", lambda *_, **__: None)
        monkeypatch.setattr(Progress, "remove_task", lambda *_: None)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
        self.train(capsys, people, tmp_path, "--force")
        assert "training" in drawn

    @pytest.mark.parametrize("when", ["training", "writing"])
    def test_interrupted_it_leaves_nothing(self, capsys, people, tmp_path, monkeypatch, when):
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
        out = tmp_path / "some" / "model"
        text = said(
            capsys, "train", str(people[0]), "--target", "income", "--schema", str(people[1]),
            "--out", str(out), code=130,
        )  # fmt: skip
        assert "interrupted" in text
        assert not (tmp_path / "some").exists()

    def test_verify_says_what_was_not_checked(self, capsys, people, tmp_path):
        self.train(capsys, people, tmp_path)
        model, certificate = (tmp_path / "model" / f"{x}.json" for x in ("model", "certificate"))
        (tmp_path / "alone").mkdir()
        (tmp_path / "alone" / "its.json").write_text(certificate.read_text())
        alone = said(capsys, "verify", str(tmp_path / "alone" / "its.json")).splitlines()
        assert alone[0].startswith("holds")
        assert "not checked: which model it belongs to (--model)" in alone
        assert "not signed: anyone can have written it" in alone
        beside = said(capsys, "verify", str(certificate), "--model", str(model))
        assert f"of the model in {model}" in beside
        assert "not checked" not in beside

    def test_a_seeded_training_is_refused_unless_allowed(self, capsys, tmp_path):
        rows = np.random.default_rng(0).normal(size=(200, 3))
        fitted = PrivateLogisticRegression(random_state=0).fit(rows, rows[:, 0] > 0)
        file = tmp_path / "certificate.json"
        file.write_text(fitted.certificate_)
        assert main(["verify", str(file)]) == 1
        text = capsys.readouterr().out
        assert text.startswith("not private against someone who knows the seed")
        text = said(capsys, "verify", str(file), "--allow-seeded")
        assert text.startswith("not private against someone who knows the seed")
        with pytest.warns(PrivacyWarning, match="not private against someone who knows"):
            verify(fitted.certificate_)

    def test_a_signed_certificate(self, capsys, people, tmp_path):
        for words in (["genpkey", "-algorithm", "ed25519", "-out"], ["pkey", "-pubout", "-in"]):
            command = ["openssl", *words, str(tmp_path / "key")]
            public = ["-out", str(tmp_path / "key.pub")] if words[0] == "pkey" else []
            subprocess.run([*command, *public], check=True, capture_output=True)
        self.train(capsys, people, tmp_path, "--sign", str(tmp_path / "key"))
        certificate = tmp_path / "model" / "certificate.json"
        words = ["verify", str(certificate), "--signed-by", str(tmp_path / "key.pub")]
        assert "signed by the owner of" in said(capsys, *words)
        assert "not checked: who signed it" in said(capsys, "verify", str(certificate))
        record = json.loads(certificate.read_text())
        record["guarantee"]["epsilon"] = 9.0
        record["digest"] = digest(record)
        certificate.write_text(json.dumps(record))
        assert "holds" in said(capsys, "verify", str(certificate))
        assert "not of that key" in said(capsys, *words, code=1)

    def test_a_key_that_is_none_is_refused_before_training(self, capsys, people, tmp_path):
        words = ["train", str(people[0]), "--target", "income", "--schema", str(people[1])]
        text = said(capsys, *words, "--sign", str(people[1]), "--out", str(tmp_path / "m"), code=2)
        assert "Ed25519 private key" in text
        assert not (tmp_path / "m").exists()

    def test_a_changed_certificate_fails(self, capsys, people, tmp_path):
        self.train(capsys, people, tmp_path)
        file = tmp_path / "model" / "certificate.json"
        record = json.loads(file.read_text())
        record["guarantee"]["epsilon"] = 0.5
        file.write_text(json.dumps(record))
        assert "does not hold" in said(capsys, "verify", str(file), code=1)

    def test_a_model_that_predicts_by_other_numbers_fails(self, capsys, people, tmp_path):
        self.train(capsys, people, tmp_path)
        model, certificate = (tmp_path / "model" / f"{x}.json" for x in ("model", "certificate"))
        record = json.loads(model.read_text())
        for key in ("coef", "intercept"):
            changed = {**record, key: (np.array(record[key]) + 1e-9).tolist()}
            del changed["digest"]
            model.write_text(json.dumps({**changed, "digest": model_digest(changed)}))
            words = ["verify", str(certificate), "--model", str(model)]
            assert "predicts by other numbers" in said(capsys, *words, code=1)

    def test_text_without_a_vocabulary_is_refused(self, capsys, people):
        people[1].write_text(json.dumps(PEOPLE | {"job": {"range": [0, 1]}}))
        words = ["train", str(people[0]), "--target", "income", "--schema", str(people[1])]
        text = said(capsys, *words, code=2)
        assert "column 'job' must be a finite number in every row" in text
        assert "text or an infinite number in rows 1, 2, 3, 4, 5 and others" in text
        assert len(text.splitlines()) == 1

    def test_a_schema_about_no_column_is_refused(self, capsys, people, tmp_path):
        schema = tmp_path / "misspelt.json"
        schema.write_text(json.dumps(PEOPLE | {"aeg": {"range": [18, 90]}}))
        words = ["train", str(people[0]), "--target", "income", "--schema", str(schema)]
        text = said(capsys, *words, code=2)
        assert "the table has no column 'aeg'; it has age, job." in text

    def test_columns_far_beyond_the_bound_are_said(self, capsys, people, tmp_path):
        lines = people[0].read_text().splitlines()
        weighty = [f"{line},{'weight' if k == 0 else 200_000 + k}" for k, line in enumerate(lines)]
        people[0].write_text("\n".join(weighty) + "\n")
        people[1].write_text(json.dumps(PEOPLE | {"weight": "as it is"}))
        words = ["train", str(people[0]), "--target", "income", "--schema", str(people[1])]
        assert (
            main(
                [*words, "--feature-bound", "1.7", "--delta", "0.01", "--out", str(tmp_path / "m")]
            )
            == 0
        )
        text = capsys.readouterr().err
        assert "of the examples are more than ten times as long" in text
        assert "warning: delta = 0.01 is not below 1/n for n = 3,000 examples" in text

    def test_labels_must_be_declared(self, capsys, people, tmp_path):
        schema = tmp_path / "columns.json"
        schema.write_text(json.dumps({name: PEOPLE[name] for name in ("age", "job")}))
        words = ["train", str(people[0]), "--target", "income", "--schema", str(schema)]
        text = said(capsys, *words, code=2)
        assert "classes must be declared, since the labels are published" in text
        assert "50K" not in text
        words[-1] = str(people[1])
        assert "found both" in said(capsys, *words, "--classes", "a,b", code=2)

    @pytest.mark.parametrize("cell", ["AliceSmith", "51234.56"])
    def test_a_label_of_one_row_is_not_published(self, capsys, people, tmp_path, cell):
        lines = people[0].read_text().splitlines()
        lines[7] = ",".join([*lines[7].split(",")[:2], cell])
        people[0].write_text("\n".join(lines) + "\n")
        text = self.train(capsys, people, tmp_path)
        files = [path.read_text() for path in (tmp_path / "model").iterdir()]
        assert json.loads((tmp_path / "model/model.json").read_text())["classes"] == [
            "<=50K",
            ">50K",
        ]
        assert not [each for each in (text, *files) if cell in each]

    def test_numbers_are_no_labels(self, capsys, people, tmp_path):
        schema = tmp_path / "number.json"
        schema.write_text(json.dumps(PEOPLE | {"income": {"range": [0, 1e5]}}))
        words = ["train", str(people[0]), "--target", "income", "--schema", str(schema)]
        assert "to predict numbers, add --task regression" in said(capsys, *words, code=2)

    def test_a_misspelt_target_lists_columns(self, capsys, people, tmp_path):
        words = ["train", str(people[0]), "--target", "incom", "--schema", str(people[1])]
        text = said(capsys, *words, "--classes", "yes,no", code=2)
        names = people[0].read_text().splitlines()[0].replace(",", ", ")
        assert f"the header: {names} (did you mean 'income'?); got --target='incom'" in text
        text = said(capsys, "schema", str(people[0]), "--target", "incom", code=2)
        assert "the header, such as income; got" in text

    def test_without_a_header_no_row_is_printed(self, capsys, tmp_path):
        file = tmp_path / "rows.csv"
        file.write_text("AliceSmith,teacher,yes\nBob,clerk,no\n")
        text = said(capsys, "train", str(file), "--target", "y", "--classes", "yes,no", code=2)
        assert "one of the 3 names in the first line" in text
        assert "Alice" not in text
        text = said(capsys, "schema", str(file), "--target", "y", code=2)
        assert "the 3 names in the first line of the file, the header; got" in text
        file.write_text("AliceSmith,55,55\nBob,44,44\n")
        assert "Alice" not in said(capsys, "train", str(file), "--target", "y", code=2)

    def test_npz(self, capsys, tmp_path):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(500, 3))
        np.savez(tmp_path / "data.npz", x=rows, y=(rows[:, 0] > 0).astype(int))
        file, schema = str(tmp_path / "data.npz"), tmp_path / "s.json"
        schema.write_text('{"*": {"range": [-3, 3]}}')
        words = ["train", file, "--target", "y", "--classes", "0,1", "--out", str(tmp_path / "m")]
        words += ["--schema", str(schema)]
        said(capsys, *words)
        assert (tmp_path / "m" / "certificate.json").exists()

    @pytest.mark.parametrize(
        "arguments, message",
        [
            (["missing.csv", "--target", "y"], "No such file"),
            (["missing.xls", "--target", "y"], "must be a file that ends in .csv"),
        ],
    )
    def test_missing_files(self, capsys, arguments, message):
        assert message in said(capsys, "train", *arguments, code=2)

    @pytest.mark.parametrize(
        "content", [b"", b"junk", b"x,y\n1\n", b"x,y\n\x00,1\n", b"x,y\n1,2\n"]
    )
    @pytest.mark.parametrize("kind", ["csv", "npz"])
    def test_files_that_are_no_tables(self, capsys, tmp_path, content, kind):
        file = tmp_path / f"data.{kind}"
        file.write_bytes(content)
        text = said(capsys, "train", str(file), "--target", "y", code=2)
        assert len(text.strip().splitlines()) == 1

    def test_a_model_that_lacks_something(self, capsys, people, tmp_path):
        model = tmp_path / "model.json"
        model.write_text('{"format": "lastiterate model 3"}')
        assert "model.json" in said(capsys, "predict", str(model), str(people[0]), code=2)


WORDS = st.one_of(
    st.sampled_from(
        ["account", "calibrate", "bounds", "verify", "predict", "--json", "--explain", *RUN[::2]]
    ),
    st.sampled_from(["nan", "inf", "-1", "0", "1e400", "", "x", "--", "-", "\x00", "1.5", "10"]),
    st.text(max_size=6),
)


class TestMalformed:
    @given(words=st.lists(WORDS, max_size=8))
    @settings(
        max_examples=60,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
    )
    def test_one_line_and_never_a_traceback(self, capsys, words):
        code = main(words)
        printed = capsys.readouterr()
        assert code in (0, 1, 2)
        if code == 2:
            assert len(printed.err.strip().splitlines()) == 1
