"""Tables agree with print or say why not; figures are drawn; the command behaves."""

import gzip
import importlib.util
import math
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from scipy.stats import norm

import lastiterate as li
from lastiterate._progress import listen
from lastiterate.bounds.catalogue import APPROXIMATIONS
from lastiterate.cli import main
from lastiterate.errors import MissingExtra
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.reproduce import (
    bok_su_altschuler,
    chien_li,
    coverage,
    items,
    renyi_figures,
    runs,
    ye_shokri,
)
from lastiterate.reproduce import bok_su_altschuler as accuracy
from lastiterate.reproduce import papers as printed_papers
from lastiterate.reproduce.coverage import COVERAGE, Availability, summary
from lastiterate.reproduce.items import Cell, FigureItem, Table, TableItem
from lastiterate.reproduce.papers import ITEMS, find, write_page
from tests.reference import bok_su_altschuler as bsa
from tests.reference import papers
from tests.slow import slow, slow_if

COMPUTED = [x for x in ITEMS.values() if isinstance(x, TableItem) and not x.data]
DRAWN = [x for x in ITEMS.values() if isinstance(x, FigureItem)]
OTHERS = [x for x in DRAWN if x.id != "cl-figure-2"]
SLOW = {"cl-figure-1", "bsa-figure-10", *(f"bsa-figure-{k}" for k in (1, 2, 6, 7, 8, 9))}
with_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="drawing needs the extra [plot]"
)


def by_id(item):
    return item.id


class TestTables:
    @pytest.mark.parametrize("item", COMPUTED, ids=by_id)
    def test_agree_to_the_last_digit_or_are_explained(self, item):
        table = item.compute()
        assert table.id == item.id
        assert len(table.cells) >= (4 if item.id == "ys-privacy" else 9)
        assert not table.unexplained
        for cell in table.cells:
            assert cell.agrees or cell.where.startswith("E*,")

    def test_their_code_explains_all_27_e_stars_and_the_theorem_none(self):
        cells = [cell for k in (10, 11, 12) for cell in ITEMS[f"bsa-table-{k}"].compute().cells]
        theirs = [cell for cell in cells if cell.where.startswith("E* of their code")]
        assert [cell.agrees for cell in theirs] == [True] * 27
        crossings = [cell for cell in cells if cell.where.startswith("E*,")]
        assert [cell.agrees for cell in crossings] == [False] * 27
        for length, rows in items.TABLES_10_TO_12.items():
            for sensitivity, row in rows.items():
                for eta, (epochs, _) in zip(items.STEP_SIZES_10, row, strict=True):
                    found = bsa.e_star_of_their_code(l=length, L_over_b=sensitivity, eta=eta)
                    assert found == epochs
                    assert (
                        bok_su_altschuler.e_star_of_their_code(length, sensitivity, eta) == epochs
                    )

    def test_their_bounds_are_their_records_and_account_agrees(self):
        run = runs.mnist(50, 0.002)
        theirs = li.CATALOGUE["published/bok-su-altschuler/cyclic"].profile(run).gdp()
        assert li.account(run).gdp() == pytest.approx(theirs, rel=1e-9)

    def test_a_wrong_digit_would_be_seen(self):
        table = Table("t", "t", (Cell("a", 1.2349, 1.23, 2), Cell("b", 1.2351, 1.23, 2)))
        assert [cell.where for cell in table.unexplained] == ["b"]
        near, far = (Cell("c", 90.0 + off, 90.0, 2, within=0.1) for off in (0.099, 0.101))
        assert (near.agrees, far.agrees) == (True, False)

    def test_all_that_is_promised_is_there(self):
        tables = {f"bsa-table-{k}" for k in range(1, 13)}
        figures = {f"bsa-figure-{k}" for k in (1, 2, 4, 6, 7, 8, 9, 10)}
        others = {"ys-figure-1", "ys-figure-2", "cl-figure-1", "cl-figure-2", "cys-figure-2"}
        assert set(ITEMS) == tables | figures | others | {
            "at-figure-1", "cwcl-figures-3a", "ys-privacy", "ys-algorithm-2",
        }  # fmt: skip


@with_matplotlib
class TestFigures:
    @pytest.mark.parametrize("item", slow_if(lambda x: x.id in SLOW, OTHERS), ids=by_id)
    def test_are_drawn(self, item):
        canvas = item.canvas()
        lines = [line for axes in canvas.axes for line in axes.lines]
        assert len(lines) >= 2
        for line in lines:
            data = np.asarray(line.get_ydata(), dtype=float)
            assert np.all(np.isfinite(data))

    def test_are_saved(self, tmp_path):
        paths = ITEMS["bsa-figure-2"].save(tmp_path)
        assert [path.suffix for path in paths] == [".png", ".svg"]
        assert all(path.stat().st_size > 1000 for path in paths)

    def test_figure_1_has_the_earlier_renyi_bound(self):
        """Epsilon of Ye and Shokri's Theorem D.6, by the formula of the authors' code."""
        lines = {line.get_label(): line for line in ITEMS["bsa-figure-1"].canvas().axes[1].lines}
        found = np.asarray(lines["Ye and Shokri 2022, Theorem D.6"].get_ydata(), float)
        assert found == pytest.approx([1.775, 2.440, 3.177, 3.785, 4.061], abs=1e-3)

    def test_figure_2_shows_a_mechanism_between(self):
        *_, mechanism, _ = ITEMS["bsa-figure-2"].canvas().axes[0].lines
        x, y = (np.asarray(values, float) for values in mechanism.get_data())
        grid = np.linspace(0.001, 0.999, 999)
        curve = np.interp(grid, x, y)
        one, half = (norm.cdf(norm.ppf(1 - grid) - mu) for mu in (1.0, 0.5))
        assert (curve >= one).all()
        assert (curve < half).any()

    def test_figure_10_has_the_axes_of_print(self):
        canvas = ITEMS["bsa-figure-10"].canvas()
        assert len(canvas.axes) == 25
        assert {len(axes.lines) for axes in canvas.axes} == {6}
        titles = [axes.get_title() for axes in canvas.axes]
        assert titles[0] == "b/n = 0.0025, L/b = 0.125"
        assert titles[-1] == "b/n = 0.04, L/b = 2"
        # Theorem 4.10 with the factors (sqrt 10, sqrt 10/3), by Lemma A.5, the least over lengths.
        p, r, far = 0.01, 0.5 / 3, 1 / (0.1 * 3)
        least = min(
            math.hypot(
                math.sqrt(10 / nu) * far,
                bsa.lemma_a_5(t=nu, p=p, L=2 * math.sqrt(10) / 3 * r, b=1, sigma=1),
            )
            for nu in range(100, 5000, 100)
        )
        assert bok_su_altschuler.bounded_limit(p, r, far) == pytest.approx(least, rel=1e-9)

    def test_figures_6_to_9_have_three_lengths_and_two_deltas(self):
        for k, curves in ((6, 6), (7, 4), (8, 6), (9, 4)):
            left, right = ITEMS[f"bsa-figure-{k}"].canvas().axes
            assert len(left.lines) == curves + 1
            assert len(right.lines) == 4
            for line in right.lines:
                values = np.asarray(line.get_ydata(), float)
                assert (np.diff(values) >= 0).all()  # longer runs are never more private

    def test_figure_4_meets_its_tangents(self):
        """The symmetrised curve lies below the one-step curves and touches each."""
        canvas = ITEMS["bsa-figure-4"].canvas()
        *steps, both = canvas.axes[0].lines[:4]
        x, y = both.get_data()
        for line in steps:
            a, b = (np.asarray(values)[::-1] for values in line.get_data())
            gaps = np.interp(x, a, b) - y
            assert gaps.min() > -2e-3
            assert gaps[20:-20].min() < 5e-3


class TestCommand:
    def run(self, *arguments):
        said = StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            code = main(["reproduce", *arguments])
        return code, said.getvalue()

    @pytest.mark.parametrize(
        "words, said",
        [
            ((), list(ITEMS)),
            (("bsa-table-1",), ["4.34"]),
            (("--coverage",), ["84 items", "published/chourasia-ye-shokri/balanced"]),
            # What no text prints is not headed as if it were.
            (("ys-privacy",), ["by their settings", "No text prints these numbers"]),
        ],
        ids=str,
    )
    def test_prints(self, words, said):
        code, text = self.run(*words)
        assert code == 0
        assert all(one in text for one in said)
        assert "DIFFERS" not in text

    def test_unknown_ids_and_missing_data(self, tmp_path):
        assert self.run("bsa-table-99")[0] == 2
        assert "data must be a folder with MNIST" in self.run("bsa-table-2")[1]
        code, text = self.run("bsa-table-2", "--data", str(tmp_path))
        assert code == 2
        assert "train-images" in text.replace("\n", "")
        with pytest.raises(li.InvalidParameter, match="id must be one of"):
            find("x")
        with pytest.raises(li.InvalidParameter, match="seeds must be"):
            ITEMS["bsa-table-2"].table(tmp_path, 0)

    @with_matplotlib
    def test_a_page(self, tmp_path):
        heard = []
        some = [ITEMS["bsa-table-7"], ITEMS["bsa-figure-2"], ITEMS["bsa-table-5"]]
        with listen(lambda what, share: heard.append((what, share))):
            page, left_out = write_page(some, tmp_path)
        text = page.read_text()
        shares = [share for what, share in heard if what == "reproducing"]
        assert shares == sorted(shares)
        assert {0, 1 / 3, 2 / 3, 1} <= set(shares)
        assert "<svg" in text
        assert "data must be a folder with MNIST" in text
        assert list(left_out) == ["bsa-table-5"]
        code, shown = self.run("bsa-figure-2", "--out", str(tmp_path))
        assert code == 0
        assert "bsa-figure-2.svg" in shown.replace("\n", "")

    @with_matplotlib
    def test_all_says_what_it_left_out(self, tmp_path, monkeypatch):
        few = {id_: ITEMS[id_] for id_ in ("bsa-table-7", "bsa-table-5")}
        monkeypatch.setattr(printed_papers, "ITEMS", few)
        code, text = self.run("all", "--out", str(tmp_path))
        assert code == 0
        assert "left out: bsa-table-5 (data must be a folder with MNIST" in " ".join(text.split())
        assert "bsa-table-7" not in text


class TestFalseAsPrinted:
    @pytest.mark.parametrize("order, q, z", [(2.0, 0.1, 1.0), (8.0, 0.1, 1.0), (3.5, 0.02, 4.0)])
    def test_both_directions_by_another_quadrature(self, order, q, z):
        small = papers.sampled_gaussian(order, q, z, printed=True)
        large = papers.sampled_gaussian(order, q, z, printed=False)
        assert coverage.smaller_direction(order, q, z) == pytest.approx(small, rel=1e-6)
        assert coverage.larger_direction(order, q, z) == pytest.approx(large, rel=1e-6)

    def test_the_published_example_is_violated_and_the_repaired_bound_is_not(self):
        """T = 1, D = .01, L = 1, b = 1, n = 10, eta = 1, sigma = .5: exact divergence .350."""
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, lipschitz=1.0), sensitivity=2.0, noise_std=0.5,
            batches=li.SampledWithoutReplacement(10, 1), steps=1, step_size=1.0,
            domain=li.Ball(0.01),
        )  # fmt: skip
        repaired = li.account(run, bounds="published/altschuler-talwar/sampled-bounded")
        assert repaired.renyi(2.0) > 0.351


def _write_mnist(folder, count, rng):
    for name, size in (("train", count), ("t10k", 500)):
        labels = rng.integers(0, 10, size).astype(np.uint8)
        images = rng.integers(0, 60, (size, 784)).astype(np.uint8)
        images[np.arange(size), labels] = 255
        images[np.arange(size), 100 + labels] = 255
        head = bytes(16)
        (folder / f"{name}-images-idx3-ubyte.gz").write_bytes(
            gzip.compress(head + images.tobytes(), 1)
        )
        (folder / f"{name}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(bytes(8) + labels.tobytes(), 1)
        )


def clipped(logits, y, norms, clipping):
    return ye_shokri.residuals(logits, y, norms, clip_norm=5.0, clipping=clipping)


class TestAccuracy:
    def test_only_training_images_are_clipped(self, tmp_path):
        rng = np.random.default_rng(0)
        _write_mnist(tmp_path, 40, rng)
        bright = np.full((500, 784), 255, np.uint8)
        path = tmp_path / "t10k-images-idx3-ubyte.gz"
        path.write_bytes(gzip.compress(bytes(16) + bright.tobytes(), 1))
        x, _, x_test, _ = accuracy.read_mnist(tmp_path)
        assert np.linalg.norm(x[:, :-1], axis=1).max() <= 8.0 + 1e-4
        assert np.linalg.norm(x_test[:, :-1], axis=1) == pytest.approx(28.0)

    @pytest.mark.parametrize("batches", ["cyclic", slow("shuffled"), "sampled"])
    def test_reads_and_learns(self, tmp_path, batches):
        _write_mnist(tmp_path, 3000, np.random.default_rng(0))
        x, y, x_test, y_test = accuracy.read_mnist(tmp_path)
        assert x.shape == (3000, 785)
        clipping = "norm" if batches == "cyclic" else "wrong mass"
        settings = ye_shokri.SoftmaxSettings(
            5.0, 0.05, 0.01, 1500, 0.002, 30, batches=batches, clipping=clipping
        )
        *_, (epochs, weights) = ye_shokri.weights_by_epoch(x, y, settings, seed=1)
        assert epochs == 30
        assert ye_shokri.accuracy(x_test, y_test, weights) > 50.0

    def test_means_over_seeds(self, tmp_path, monkeypatch):
        """Table 6 has a cell for each column, the mean of the seeds."""
        _write_mnist(tmp_path, 3000, np.random.default_rng(0))
        calls = []

        def quick(x, y, settings, seed):
            calls.append((settings.batches, settings.regulariser, seed))
            weights = np.zeros((785, 10), np.float32)
            weights[-1, seed] = 1.0  # says `seed` to everything
            return iter([(epochs, weights) for epochs in (50, 100, 200)])

        monkeypatch.setattr(accuracy, "weights_by_epoch", quick)
        accuracy.mean_accuracies.cache_clear()
        table = ITEMS["bsa-table-6"].table(tmp_path, 3)
        assert len(table.cells) == 12
        assert sorted(calls) == sorted(
            (batches, lam, seed)
            for batches in ("cyclic", "sampled") for lam in (0.002, 0.004) for seed in range(3)
        )  # fmt: skip
        _, _, _, y_test = accuracy.read_mnist(tmp_path)
        expected = np.mean([100.0 * np.mean(y_test == seed) for seed in range(3)])
        assert {round(cell.ours, 9) for cell in table.cells} == {round(float(expected), 9)}
        assert len(ITEMS["bsa-table-5"].table(tmp_path, 3).cells) == 12
        assert len(calls) == 12  # the trainings are shared
        assert len(ITEMS["bsa-table-2"].table(tmp_path, 3).cells) == 6
        accuracy.mean_accuracies.cache_clear()

    @pytest.mark.parametrize("clipping", ["norm", "wrong mass"])
    def test_clipped_gradients_have_the_stated_norm(self, clipping):
        rng = np.random.default_rng(2)
        logits = rng.normal(scale=4.0, size=(300, 10)).astype(np.float32)
        y = rng.integers(0, 10, 300)
        norms = rng.uniform(0.5, math.sqrt(65), 300).astype(np.float32)
        sizes = np.linalg.norm(clipped(logits, y, norms, clipping), axis=1) * norms
        assert sizes.max() <= 5.0 + 1e-3
        assert sizes.max() > 3.0

    def test_one_clipping_is_monotone_and_norm_clipping_is_not(self):
        """At the point of the errata page: <r(u) - r(v), u - v> for nearby u, v."""
        y, norms = np.array([0]), np.array([math.sqrt(65)], np.float32)
        u = np.array([[0.89, 1.68] + [-1.23] * 8])

        def least(clipping):
            rng, values = np.random.default_rng(3), []
            for _ in range(3000):
                d = rng.normal(size=(1, 10)) * 1e-3
                one = clipped(u + d, y, norms, clipping).astype(float)
                other = clipped(u - d, y, norms, clipping).astype(float)
                values.append(((one - other) * d).sum() / (d * d).sum())
            return min(values)

        assert least("wrong mass") > -1e-3
        assert least("norm") < -1e-3


class TestYeShokri:
    def test_epsilon_by_hand(self):
        """Corollary 5.3 and the statistics, in the paper's symbols, at the orders of their code."""
        for one, target in zip(ye_shokri.EXPERIMENTS, (3.0, 3.0, 3.0, 2.0), strict=True):
            # Any S_g will do: noise is S_g/2 times the multiplier.
            b, eta, z = one.batch_size, one.step_size, one.noise_multiplier
            sigma = math.sqrt(eta / 2) / b * z * one.clip_norm
            values = []
            # Larger orders overflow here; the least is at about 8.
            for alpha in [1 + x / 10 for x in range(1, 100)] + list(range(12, 30)):
                divergence = papers.ys_shuffled(
                    n=one.examples, K=one.epochs, alpha=alpha, eta=eta, lam=one.regulariser,
                    S_g=2 * one.clip_norm, sigma=sigma, b=b,
                )  # fmt: skip
                if one.statistics_noise:
                    divergence += alpha / one.statistics_noise**2
                values.append(divergence + math.log(1e5) / (alpha - 1))
            assert one.epsilon_as_published() == pytest.approx(min(values), rel=1e-6)
            assert 0.99 * target < one.epsilon_as_published() <= target
            assert one.step_size < 2 / ((one.feature_norm**2 + 1) / 2 + 2 * one.regulariser)

    def test_statistics_of_a_replaced_row_cost_more(self):
        found = [one.epsilon_as_published(replaced_statistics=True)
                 for one in ye_shokri.EXPERIMENTS]  # fmt: skip
        assert found == pytest.approx([3.311, 2.997, 3.557, 1.996], abs=1e-3)

    def test_their_curve_of_balle_et_al(self):
        """One pass, as stated there; above the exact privacy of a quadratic."""
        run = runs.ye_shokri_example(1, li.Cyclic)
        r = run.sensitivity / (2 * run.noise_std)
        for position in (0, 7, 23, 24):
            found = renyi_figures.balle_in_epochs(run, position)
            # S_g = 2 C of one batch; their sigma is on the gradient.
            stated = papers.balle_theorem_5(
                position + 1, alpha=1.0, n=25, C=r / 2, sigma=1.0, eta=0.02, beta=4.0, rho=1.0
            )
            assert found == pytest.approx(stated, rel=1e-12)
            left, c = 24 - position, 0.98
            exact = r**2 / 2 * c ** (2 * left) / sum(c ** (2 * k) for k in range(left + 1))
            assert found >= exact
            five = runs.ye_shokri_example(5, li.Cyclic)
            assert renyi_figures.balle_in_epochs(five, position) == pytest.approx(5 * found)

    def test_algorithm_2_on_features(self, tmp_path, monkeypatch):
        rng = np.random.default_rng(5)
        y = rng.integers(0, 3, 2300)
        x = np.eye(3)[y] + 0.05 * rng.normal(size=(2300, 3))
        path = tmp_path / "features.npz"
        np.savez(path, X_train=x[:2100], y_train=y[:2100], X_test=x[2100:], y_test=y[2100:])
        table = ITEMS["ys-algorithm-2"].table(path, 1)
        text = " ".join(table.notes)
        assert "NOT CERTIFIED" in text
        assert float(text.split("training, ")[1].split(" test")[0]) > 90.0
        run = ye_shokri.EXPERIMENTS[-1].run(2100)
        epsilon = li.CATALOGUE["published/ye-shokri/clipped-logistic"].profile(run).epsilon(1e-5)
        assert f"{epsilon:.3f}" in text

    def test_files_that_are_no_features(self, tmp_path):
        item, path = ITEMS["ys-algorithm-2"], tmp_path / "x.npz"
        with pytest.raises(li.InvalidParameter, match=r"\.npz file with X_train"):
            item.table(path, 1)
        path.write_text("no")
        with pytest.raises(li.InvalidParameter, match=r"\.npz file with X_train"):
            item.table(path, 1)
        rows = {"X_train": np.zeros((9, 2)), "X_test": np.zeros((3, 2)),
                "y_train": np.zeros(9, int), "y_test": np.zeros(3, int)}  # fmt: skip
        for name, values, needed in (
            ("X_test", np.full((3, 2), np.nan), "finite rows"),
            ("y_train", np.zeros(8, int), "finite rows"),
            ("y_test", np.zeros(3), "whole numbers"),
            ("y_test", np.full(3, -1), "whole numbers"),
            ("X_test", np.zeros((3, 2)), "two batches"),
        ):
            np.savez(path, **{**rows, name: values})
            with pytest.raises(li.InvalidParameter, match=needed):
                item.table(path, 1)


class TestCoverage:
    @pytest.mark.parametrize("one", COVERAGE, ids=lambda one: f"{one.paper}: {one.item}")
    def test_what_it_names_exists(self, one):
        assert one.missing() == []
        assert one.where or one.note
        if one.state is Availability.NO_NUMBER or one.state is Availability.NOT_AT_HAND:
            assert one.note

    def test_all_items_of_the_audit(self):
        counts = {}
        for one in COVERAGE:
            counts[one.paper] = counts.get(one.paper, 0) + 1
        assert counts == {"bsa": 30, "at": 15, "ys": 14, "cl": 13, "cys": 12}
        (main_text,) = (one for one in COVERAGE if one.item.startswith("Main text"))
        assert (main_text.paper, main_text.state) == ("cys", Availability.NOT_AT_HAND)
        assert "partial 0, missing 0" in summary()

    def test_an_address_that_does_not_exist_is_seen(self):
        names = ("published/x/y", "lastiterate:nothing", "bsa-table-99")
        assert replace(COVERAGE[0], where=names).missing() == list(names)

    def test_every_published_record_and_every_item_is_listed(self):
        listed = {place for one in COVERAGE for place in one.where}
        five = ("bok-su-altschuler", "altschuler-talwar", "ye-shokri", "chien-li",
                "chourasia-ye-shokri")  # fmt: skip
        records = {**li.CATALOGUE, **LOWER_BOUNDS, **APPROXIMATIONS}
        published = {id_ for id_ in records if id_.startswith("published/")}
        assert {id_ for id_ in published if id_.split("/")[1] in five} <= listed
        assert set(ITEMS) - listed == {"cwcl-figures-3a"}


class TestNetwork:
    def test_gradient_by_differences(self):
        rng = np.random.default_rng(4)
        x, y = rng.normal(size=(12, 4)), rng.integers(0, 3, 12)
        weights = rng.normal(scale=0.5, size=5 * 64 + 65 * 3)

        def loss(w):
            first, second = w[: 5 * 64].reshape(5, 64), w[5 * 64 :].reshape(65, 3)
            hidden = np.maximum(np.hstack([x, np.ones((12, 1))]) @ first, 0)
            logits = np.hstack([hidden, np.ones((12, 1))]) @ second
            peaks = logits.max(axis=1)
            logs = peaks + np.log(np.exp(logits - peaks[:, None]).sum(axis=1))
            return 0.1 * np.mean(logs - logits[np.arange(12), y])

        slope = chien_li.gradient(weights, x, y)
        for _ in range(5):
            d = rng.normal(size=weights.size)
            change = (loss(weights + 1e-6 * d) - loss(weights - 1e-6 * d)) / 2e-6
            assert slope @ d == pytest.approx(change, rel=1e-5, abs=1e-9)

    @pytest.mark.skipif(importlib.util.find_spec("sklearn") is not None, reason="it is installed")
    def test_without_scikit_learn_the_extra_is_named(self):
        with pytest.raises(MissingExtra, match=r"lastiterate\[sklearn\]"):
            chien_li.hoelder_constants((0.5,))
