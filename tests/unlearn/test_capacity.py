"""How many can go, and the picture."""

import importlib.util

import numpy as np
import pytest

import lastiterate as li
from lastiterate.cli import main
from lastiterate.unlearn.unlearning import deletion_capacity, epsilon_by_extra_steps

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=0.26, regulariser=0.01),
    sensitivity=1.0,
    batches=li.Cyclic(1_000, 100),
    steps=200,
    step_size=2.0,
    noise_std=0.01,
    adjacency="zero-out",
)
with_matplotlib = pytest.mark.skipif(
    importlib.util.find_spec("matplotlib") is None, reason="drawing needs the extra [plot]"
)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_one_more_would_take_longer(share):
    many = deletion_capacity(RUN, epsilon=1.0, delta=1e-5, share=share)
    assert 0 <= many < 999
    if many:
        found = li.unlearning(RUN, epsilon=1.0, delta=1e-5, examples=many)
        assert found.extra_steps <= share * RUN.steps
    more = li.unlearning(RUN, epsilon=1.0, delta=1e-5, examples=many + 1)
    assert more.extra_steps >= share * RUN.steps


def test_bad_input():
    with pytest.raises(li.InvalidParameter, match="share"):
        deletion_capacity(RUN, epsilon=1.0, delta=1e-5, share=1.5)
    with pytest.raises(li.InvalidParameter, match="epsilon"):
        deletion_capacity(RUN, epsilon=0.0, delta=1e-5)


@with_matplotlib
def test_the_picture_shows_what_is_certified():
    canvas = epsilon_by_extra_steps(RUN, examples=[1, 5], steps=[1, 10, 50])
    drawn = {tuple(np.ravel(line.get_ydata()).tolist()) for line in canvas.axes[0].lines}
    for many in (1, 5):
        told = tuple(
            li.unlearning(RUN, extra_steps=k, examples=many).epsilon(1e-5) for k in (1, 10, 50)
        )
        assert told in drawn


@with_matplotlib
def test_the_command(tmp_path, run_file):
    out = tmp_path / "faded.svg"
    assert main(["plot", "epsilon-by-extra-steps", *run_file, "--out", str(out)]) == 0
    assert out.stat().st_size > 1_000


@pytest.fixture
def run_file():
    return [
        "--examples", "1000", "--batch-size", "100", "--steps", "200", "--step-size", "2",
        "--noise-std", "0.01", "--smoothness", "0.26", "--strong-convexity", "0.01",
        "--sensitivity", "1", "--batches", "cyclic", "--at", "1", "--at", "20", "--remove", "1",
    ]  # fmt: skip
