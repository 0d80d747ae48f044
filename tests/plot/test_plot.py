"""Pictures show what was computed; nothing in them overlaps or is cut off; ticks are round."""

import math
import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate import plot
from lastiterate._progress import listen
from lastiterate.bounds.fixed_order.convex import worst_schedule, written_out
from lastiterate.bounds.shuffling.proof_search import ShuffledProfile
from lastiterate.errors import InvalidParameter, InvalidType, MissingExtra
from lastiterate.plot import lines
from lastiterate.plot.curves import tradeoff_curve
from lastiterate.plot.style import number, ticks_of_logs
from tests.slow import slow_if

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002),
    sensitivity=10.0,
    batches=li.ShuffledOnce(examples=60_000, batch_size=15_000),
    steps=400,
    step_size=0.05,
    noise_std=0.001,
)
DECAYING = tuple(0.05 / (1 + k / 50) for k in range(120))
RUNS = {
    "shuffled": RUN,
    "cyclic": RUN.replace(batches=li.Cyclic(60_000, 15_000)),
    "full": RUN.replace(batches=li.FullBatch(60_000)),
    "ball": RUN.replace(domain=li.Ball(0.0001), loss=li.Loss(smoothness=1.0)),
    "non-convex": RUN.replace(loss=li.Loss(smoothness=0.5, convex=False)),
    "release": RUN.replace(release_noise_std=0.0002),
    "output": RUN.replace(noise_std=0.0, release_noise_std=0.001),
    "one step": RUN.replace(steps=1),
    "huge epsilon": RUN.replace(noise_std=1e-9),
    "no finite epsilon": RUN.replace(noise_std=1e-300),
    "fixed order": RUN.replace(batches=li.FixedOrder(60_000, 15_000, [3, 40, 77, 399])),
    "schedule": RUN.replace(steps=120, step_size=DECAYING),
}


QUICK = {"shuffled", "no finite epsilon", "fixed order", "schedule"}


def test_a_curve_that_ends_early_is_named_all_the_same():
    figure = lines([1, 2, 3], {"all": [1, 2, 3], "some": [1, 2, math.nan], "none": [math.nan] * 3},
                   across="x", up="y")  # fmt: skip
    named = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert named == ["all", "some\n(up to 2)"]
    assert_readable(figure)


def texts(figure):
    """Every text that is drawn, with its box in pixels."""
    renderer = figure.canvas.get_renderer()
    figure.draw(renderer)
    found = []
    for axes in figure.axes:
        candidates = [
            *axes.texts,
            *axes.get_legend().get_texts(),
            axes.title,
            axes._left_title,
            axes.xaxis.label,
        ]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            candidates += [
                tick.label1
                for tick in axis.get_major_ticks()
                if low <= tick.get_loc() <= high and tick.label1.get_visible()
            ]
        found += [(t.get_text(), t.get_window_extent(renderer)) for t in candidates if t.get_text()]
    return found


def assert_readable(figure):
    frame = figure.bbox
    drawn = texts(figure)
    assert len(drawn) > 4
    for text, box in drawn:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= frame.x1 + 1 and box.y1 <= frame.y1 + 1
        assert inside, (text, box)
    for (one, box), (other, second) in combinations(drawn, 2):
        across = min(box.x1, second.x1) - max(box.x0, second.x0)
        along = min(box.y1, second.y1) - max(box.y0, second.y0)
        assert across <= 1.0 or along <= 1.0, (one, other)


class TestReadable:
    @pytest.mark.parametrize("name", slow_if(lambda name: name not in QUICK, RUNS))
    def test_every_picture_of_every_kind_of_run(self, name):
        run = RUNS[name]
        report = li.account(run)
        steps = [1, 40, 400] if run.is_constant else None
        assert_readable(plot.epsilon_by_steps(run, steps=steps if name != "fixed order" else None))
        assert_readable(plot.tradeoff(report))
        assert_readable(plot.delta_by_epsilon(report))
        assert_readable(plot.shift_schedule(run))

    @settings(max_examples=4)
    @given(
        mus=st.lists(st.floats(1e-3, 40.0), min_size=1, max_size=14),
        length=st.integers(1, 45),
        delta=st.sampled_from([1e-12, 1e-5, 0.1]),
    )
    def test_any_profiles_under_any_names(self, mus, length, delta):
        profiles = {
            f"{'family/' * (i % 2)}{i:0{length}d}": li.GaussianProfile(mu)
            for i, mu in enumerate(mus)
        }
        assert_readable(plot.tradeoff(profiles))
        assert_readable(plot.delta_by_epsilon(profiles, delta=delta))

    @pytest.mark.parametrize(
        "draw",
        [
            lambda: plot.accuracy_by_epsilon({"one": {0.5: [0.8, 0.9], 2: [0.9]}}),
            lambda: plot.shift_schedule(RUNS["cyclic"]),
        ],
        ids=["accuracy", "plan"],
    )
    def test_dots_on_the_edge_are_whole(self, draw):
        dotted = [
            line
            for axes in draw().axes
            for line in axes.lines
            if line.get_marker() != "None"
            and set(np.float64(line.get_xdata())) & set(axes.get_xlim())
        ]
        assert dotted
        assert not any(line.get_clip_on() for line in dotted)

    def test_many_methods(self):
        results = {f"method {i}": {0.5: [0.8, 0.81], 2: [0.82 + i * 1e-4]} for i in range(12)}
        assert_readable(plot.accuracy_by_epsilon(results))
        assert_readable(plot.accuracy_by_epsilon({"one": {1.0: [0.5]}}))


class TestShowWhatWasComputed:
    def test_epsilon_by_steps(self):
        axes = plot.epsilon_by_steps(RUN, bounds="fixed-order", steps=[40, 400]).axes[0]
        expected = [
            li.account(RUN.replace(steps=k), bounds="fixed-order").epsilon(1e-5) for k in (40, 400)
        ]
        assert list(axes.lines[0].get_ydata()) == expected

    def test_whoever_waits_for_them_hears_how_far_it_is(self):
        heard = []
        with listen(lambda what, share: heard.append((what, share))):
            plot.epsilon_by_steps(RUN, bounds="fixed-order", steps=[40, 400])
        assert sorted(set(heard)) == [("every length", share) for share in (0.0, 0.5, 1.0)]

    def test_a_schedule_is_cut_not_stretched(self):
        run = RUNS["schedule"]
        axes = plot.epsilon_by_steps(run, bounds="fixed-order", steps=[60, 120]).axes[0]
        half = li.account(run.replace(steps=60, step_size=DECAYING[:60]), bounds="fixed-order")
        assert axes.lines[0].get_ydata()[0] == half.epsilon(1e-5)
        with pytest.raises(InvalidParameter, match="steps must be a whole number in"):
            plot.epsilon_by_steps(run, steps=[121])

    @pytest.mark.parametrize("mu", [0.01, 0.7, 5.0, 60.0])
    def test_the_tradeoff_is_on_the_safe_side_and_near(self, mu):
        profile, rates = li.GaussianProfile(mu), np.linspace(0.001, 0.5, 50)
        exact = np.array([profile.tradeoff(rate) for rate in rates])
        drawn = tradeoff_curve(profile, rates)
        assert np.all(drawn <= exact + 1e-12)
        assert np.all(drawn >= exact - 1e-3)

    def test_delta_by_epsilon(self):
        report = li.account(RUN)
        for line, profile in zip(
            plot.delta_by_epsilon(report).axes[0].lines, report.all.values(), strict=False
        ):
            x, y = line.get_data()
            exact = profile.delta(x[100])
            # Drawn by chords, above the curve; the last by plans that many points share.
            shared = isinstance(profile, ShuffledProfile)
            assert exact * (1 - (0.02 if shared else 1e-12)) <= y[100] <= exact * 1.02

    def test_accuracy(self):
        axes = plot.accuracy_by_epsilon({"ours": {"1": [0.8, 0.9], "4": [1.0]}}).axes[0]
        assert axes.lines[0].get_xydata().tolist() == [[1.0, 0.8500000000000001], [4.0, 1.0]]


class TestPlan:
    @pytest.mark.parametrize(
        "name", ["shuffled", "cyclic", "full", "ball", "release", "output", "schedule"]
    )
    def test_is_the_one_behind_the_bound(self, name):
        run = RUNS[name]
        plan = worst_schedule(run)
        contraction, arriving, noise = written_out(run)
        came = np.zeros(arriving.size)
        came[plan.participations] = arriving[plan.participations]
        before = plan.shifts.z[:-1]
        after = np.minimum(contraction * before + came - plan.shifts.a, plan.diameter)
        assert np.all(after <= plan.shifts.z[1:] + 1e-9 * plan.sensitivities.max())
        paid = plan.shifts.a > 0.0
        price = np.sqrt(np.sum((plan.shifts.a[paid] / noise[paid]) ** 2))
        best = min(
            profile.gdp() for id_, profile in li.account(run, bounds="fixed-order").all.items()
        )
        assert price == pytest.approx(best, rel=1e-9)

    def test_non_convex(self):
        bound = li.account(RUNS["non-convex"], bounds="fixed-order/non-convex")
        assert worst_schedule(RUNS["non-convex"]).shifts.mu == pytest.approx(bound.gdp(), rel=1e-6)

    @pytest.mark.parametrize(
        "changes, says",
        [
            ({"releases": "every-iterate"}, "a single sequence of shifts"),
            ({"steps": 10**9}, "steps must be at most"),
            ({"batches": li.FixedOrder(60_000, 15_000, [])}, "sees the example"),
        ],
    )
    def test_refusals(self, changes, says):
        with pytest.raises(InvalidParameter, match=says):
            plot.shift_schedule(RUN.replace(**changes))


class TestTicks:
    @given(low=st.floats(1e-12, 1e9), decades=st.floats(0.8, 20.0))
    def test_are_few_round_and_inside(self, low, decades):
        high = low * 10.0**decades
        ticks = ticks_of_logs(low, high)
        assert 2 <= len(ticks) <= 8
        assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in ticks)

    def test_read_like_numbers(self):
        assert [number(x) for x in (0.05, 1.0, 1_000.0, 200_000.0)] == [
            "0.05", "1", "1,000", "200,000",
        ]  # fmt: skip
        assert number(1e-5) == "$10^{-5}$"
        assert number(2.5e7) == r"$2.5\times 10^{7}$"


class TestFiles:
    def test_are_the_same_bytes_every_time(self, tmp_path):
        figure = plot.tradeoff(li.GaussianProfile(1.0))
        first = [path.read_bytes() for path in plot.save(figure, tmp_path / "a")]
        again = plot.tradeoff(li.GaussianProfile(1.0))
        second = [path.read_bytes() for path in plot.save(again, tmp_path / "deeper" / "b")]
        assert first == second
        assert sorted(path.name for path in tmp_path.glob("a.*")) == ["a.png", "a.svg"]
        assert b"<dc:date>" not in first[0]

    def test_one_ending_is_one_file(self, tmp_path):
        figure = plot.tradeoff(li.GaussianProfile(1.0))
        assert plot.save(figure, tmp_path / "a.png") == [tmp_path / "a.png"]
        assert [path.name for path in tmp_path.iterdir()] == ["a.png"]

    @pytest.mark.parametrize("out", ["a.jpg", "..", ""])
    def test_other_endings_are_refused(self, out):
        with pytest.raises(InvalidParameter, match="out must be a name without ending"):
            plot.save(plot.tradeoff(li.GaussianProfile(1.0)), out)


class TestManners:
    def test_no_global_state(self):
        code = (
            "import sys, matplotlib, lastiterate as li; from lastiterate import plot;"
            "matplotlib.rcParams['font.size'] = 40;"
            "plot.tradeoff(li.GaussianProfile(1.0)).savefig('/dev/null', format='png');"
            "assert matplotlib.rcParams['font.size'] == 40;"
            "assert 'matplotlib.pyplot' not in sys.modules"
        )
        subprocess.run([sys.executable, "-c", code], check=True)

    def test_without_matplotlib_the_extra_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(MissingExtra, match=r"lastiterate\[plot\]"):
            plot.tradeoff(li.GaussianProfile(1.0))

    @pytest.mark.parametrize(
        "draw",
        [
            lambda: plot.tradeoff({}),
            lambda: plot.tradeoff({"a": 1.0}),
            lambda: plot.epsilon_by_steps("run"),
            lambda: plot.epsilon_by_steps(RUN, steps=[]),
            lambda: plot.epsilon_by_steps(RUN, steps=[0]),
            lambda: plot.epsilon_by_steps(RUN, delta=float("nan")),
            lambda: plot.delta_by_epsilon(li.GaussianProfile(1.0), delta=0.0),
            lambda: plot.shift_schedule(None),
            lambda: plot.accuracy_by_epsilon({"a": {}}),
            lambda: plot.accuracy_by_epsilon({"a": {"one": [0.5]}}),
            lambda: plot.accuracy_by_epsilon({"a": {1.0: [float("nan")]}}),
        ],
    )
    def test_bad_input_is_refused(self, draw):
        with pytest.raises(InvalidParameter) as caught:
            draw()
        assert isinstance(caught.value, (InvalidParameter, InvalidType))
