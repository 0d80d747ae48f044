"""Tables agree with print or say why not; figures are drawn; the command behaves."""

import gzip
import importlib.util
import math
from io import StringIO

import numpy as np
import pytest
from rich.console import Console

import lastiterate as li
from lastiterate._progress import listen
from lastiterate.errors import MissingExtra
from lastiterate.reproduce import accuracy, false_as_printed, hoelder_network
from lastiterate.reproduce.__main__ import main
from lastiterate.reproduce.items import Cell, FigureItem, Table, TableItem, find
from lastiterate.reproduce.page import write_page
from lastiterate.reproduce.registry import ITEMS
from tests.reference import papers
from tests.slow import slow_if

COMPUTED = [x for x in ITEMS.values() if isinstance(x, TableItem) and not x.needs_data]
DRAWN = [x for x in ITEMS.values() if isinstance(x, FigureItem)]
OTHERS = [x for x in DRAWN if x.id != "cl-figure-2"]
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
        assert len(table.cells) >= 9
        assert not table.unexplained
        for cell in table.cells:
            assert cell.agrees or cell.where.startswith("E*")

    def test_every_e_star_is_explained(self):
        for number in (10, 11, 12):
            cells = ITEMS[f"bsa-table-{number}"].compute().cells
            assert {c.agrees for c in cells if c.where.startswith("E*")} == {False}

    def test_a_wrong_digit_would_be_seen(self):
        table = Table("t", "t", (Cell("a", 1.2349, 1.23, 2), Cell("b", 1.2351, 1.23, 2)))
        assert [cell.where for cell in table.unexplained] == ["b"]

    def test_all_that_is_promised_is_there(self):
        tables = {f"bsa-table-{k}" for k in range(1, 13)}
        figures = {f"bsa-figure-{k}" for k in (1, 2, 4, 6, 7, 8, 9, 10)}
        others = {"ys-figure-1", "ys-figure-2", "cl-figure-1", "cl-figure-2", "cys-figure-2"}
        assert set(ITEMS) == tables | figures | others | {"at-figure-1", "cwcl-figures-3a"}


@with_matplotlib
class TestFigures:
    @pytest.mark.parametrize("item", slow_if(lambda x: x.id == "cl-figure-1", OTHERS), ids=by_id)
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
        console = Console(width=120, record=True, file=StringIO())
        code = main(list(arguments), console)
        return code, console.export_text()

    def test_lists(self):
        code, text = self.run()
        assert code == 0
        assert all(id_ in text for id_ in ITEMS)

    def test_prints_a_table_beside_print(self):
        code, text = self.run("bsa-table-1")
        assert code == 0
        assert "4.34" in text
        assert "DIFFERS" not in text

    def test_unknown_ids_and_missing_data(self, tmp_path):
        assert self.run("bsa-table-99")[0] == 2
        assert "--data" in self.run("bsa-table-2")[1]
        code, text = self.run("bsa-table-2", "--data", str(tmp_path))
        assert code == 2
        assert "train-images" in text.replace("\n", "")
        with pytest.raises(li.InvalidParameter, match="id must be one of"):
            find(ITEMS, "x")

    @with_matplotlib
    def test_a_page(self, tmp_path):
        heard = []
        items = [ITEMS["bsa-table-7"], ITEMS["bsa-figure-2"], ITEMS["bsa-table-5"]]
        with listen(lambda what, share: heard.append((what, share))):
            page = write_page(items, tmp_path)
        text = page.read_text()
        shares = [share for what, share in heard if what == "reproducing"]
        assert shares == sorted(shares)
        assert {0, 1 / 3, 2 / 3, 1} <= set(shares)
        assert "<svg" in text
        assert "needs --data" in text
        code, shown = self.run("bsa-figure-2", "--out", str(tmp_path))
        assert code == 0
        assert "bsa-figure-2.svg" in shown.replace("\n", "")


class TestFalseAsPrinted:
    @pytest.mark.parametrize("order, q, z", [(2.0, 0.1, 1.0), (8.0, 0.1, 1.0), (3.5, 0.02, 4.0)])
    def test_both_directions_by_another_quadrature(self, order, q, z):
        small = papers.sampled_gaussian(order, q, z, printed=True)
        large = papers.sampled_gaussian(order, q, z, printed=False)
        assert false_as_printed.smaller_direction(order, q, z) == pytest.approx(small, rel=1e-6)
        assert false_as_printed.larger_direction(order, q, z) == pytest.approx(large, rel=1e-6)

    def test_the_published_example_is_violated_and_the_repaired_bound_is_not(self):
        """T = 1, D = .01, L = 1, b = 1, n = 10, eta = 1, sigma = .5: exact divergence .350."""
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, lipschitz=1.0),
            sensitivity=2.0,
            batches=li.SampledWithoutReplacement(10, 1),
            steps=1,
            step_size=1.0,
            noise_std=0.5,
            domain=li.Ball(0.01),
        )
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


class TestAccuracy:
    def test_reads_and_learns(self, tmp_path):
        _write_mnist(tmp_path, 3000, np.random.default_rng(0))
        x, y, x_test, y_test = accuracy.read_mnist(tmp_path)
        assert x.shape == (3000, 785)
        assert np.linalg.norm(x[:, :-1], axis=1).max() <= 8.0 + 1e-4
        for sound in (False, True):
            *_, (_, weights) = accuracy.trained(
                x, y, regulariser=0.002, epochs=30, sampled=sound, sound=sound, seed=1
            )
            assert accuracy._accuracy(x_test, y_test, weights) > 50.0

    @pytest.mark.parametrize("sound", [False, True])
    def test_clipped_gradients_have_the_stated_norm(self, sound):
        rng = np.random.default_rng(2)
        logits = rng.normal(scale=4.0, size=(300, 10)).astype(np.float32)
        y = rng.integers(0, 10, 300)
        norms = rng.uniform(0.5, math.sqrt(65), 300).astype(np.float32)
        clipped = accuracy.residuals(logits, y, norms, sound=sound)
        sizes = np.linalg.norm(clipped, axis=1) * norms
        assert sizes.max() <= 5.0 + 1e-3
        assert sizes.max() > 3.0

    def test_sound_clipping_is_monotone_and_norm_clipping_is_not(self):
        """At the point of the errata page: <r(u) - r(v), u - v> for nearby u, v."""
        y, norms = np.array([0]), np.array([math.sqrt(65)], np.float32)
        u = np.array([[0.89, 1.68] + [-1.23] * 8])

        def least(sound):
            rng, values = np.random.default_rng(3), []
            for _ in range(3000):
                d = rng.normal(size=(1, 10)) * 1e-3
                one = accuracy.residuals(u + d, y, norms, sound=sound).astype(float)
                other = accuracy.residuals(u - d, y, norms, sound=sound).astype(float)
                values.append(((one - other) * d).sum() / (d * d).sum())
            return min(values)

        assert least(sound=True) > -1e-3
        assert least(sound=False) < -1e-3


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

        slope = hoelder_network.gradient(weights, x, y)
        for _ in range(5):
            d = rng.normal(size=weights.size)
            change = (loss(weights + 1e-6 * d) - loss(weights - 1e-6 * d)) / 2e-6
            assert slope @ d == pytest.approx(change, rel=1e-5, abs=1e-9)

    @pytest.mark.skipif(importlib.util.find_spec("sklearn") is not None, reason="it is installed")
    def test_without_scikit_learn_the_extra_is_named(self):
        with pytest.raises(MissingExtra, match=r"lastiterate\[sklearn\]"):
            hoelder_network.hoelder_constants((0.5,))
