"""Constants of a linear layer's loss, and what its clipped gradients are."""

import math
from fractions import Fraction

import pytest
import torch

import lastiterate as li
import lastiterate.opacus as lo
from lastiterate.bounds.momentum import curvature

from .trainings import Training, loader_of, sgd


class TestConstants:
    @pytest.mark.parametrize("bound", [1e-3, 0.1, 1 / 3, 1.0, math.sqrt(2.0), 7.7, 1e6])
    @pytest.mark.parametrize("bias", [False, True])
    def test_the_least_floats_that_are_not_below(self, bound, bias):
        square = Fraction(bound) ** 2 + bias
        for loss, half, twice in (
            (lo.softmax(feature_bound=bound, classes=5, bias=bias), square / 2, 2 * square),
            (lo.logistic(feature_bound=bound, bias=bias), square / 4, square),
        ):
            assert Fraction(loss.smoothness) >= half > Fraction(math.nextafter(loss.smoothness, 0))
            below = math.nextafter(loss.lipschitz, 0)
            assert Fraction(loss.lipschitz) ** 2 >= twice > Fraction(below) ** 2

    def test_unit_rows(self):
        assert lo.softmax(feature_bound=1.0, classes=10).lipschitz == 2.0
        assert lo.logistic(feature_bound=1.0, bias=False).max_grad_norm == 1.0

    @pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf, 1e200])
    def test_refused(self, bound):
        for made in (lo.logistic, lambda **known: lo.softmax(classes=2, **known)):
            with pytest.raises(li.InvalidParameter, match="feature_bound must be"):
                made(feature_bound=bound)


@pytest.mark.parametrize("slack", [1e-6, 1e-3, 0.05])
def test_a_clip_of_saturated_gradients_twists_no_more_than_is_charged(slack):
    """Jacobians of clipped gradients, by differences, against the symmetric part's."""
    loss = lo.softmax(feature_bound=1.0, classes=4, bias=False)
    clip = loss.lipschitz + 1e-6 - slack
    charged = loss.asymmetry(clip)
    label = torch.eye(4, dtype=torch.float64)[0]
    generator = torch.Generator().manual_seed(0)

    def gradient(logits):
        """Clipped, in the logits of a row of norm 1."""
        residual = torch.softmax(logits, 0) - label
        return residual * torch.clamp(clip / (residual.norm() + 1e-6), max=1.0)

    acted = 0
    for top in torch.linspace(-1.0, 12.0, 60, dtype=torch.float64):
        logits = torch.randn(4, generator=generator, dtype=torch.float64)
        logits[1] += top - math.log(slack)
        p = torch.softmax(logits, 0)
        hessian = torch.diag(p) - torch.outer(p, p)
        factor = min(1.0, clip / (float((p - label).norm()) + 1e-6))
        jacobian = torch.autograd.functional.jacobian(gradient, logits)
        acted += factor < 1.0
        apart = torch.linalg.matrix_norm(jacobian - factor * hessian, ord=2)
        assert float(apart) <= charged * (1.0 + 1e-9) + 1e-15
    assert acted


class TestCurvature:
    """Differences of clipped gradients, on which the bounds for clipped losses rest."""

    def made(self, classes, clip):
        lo.register(loss=lo.softmax(feature_bound=1.0, classes=classes))
        loader = loader_of(classes=classes, shuffle=False)
        settings = {"outputs": classes, "clip": clip, "lr": 0.05, "decay": 0.01}
        return Training(loader, optimizer=sgd(momentum=0.9), **settings)

    def differences(self, training, seed):
        rng = torch.Generator().manual_seed(seed)
        rows, labels = training.loader.dataset.tensors
        found = []
        for size in (0.3, 3.0, 3.0, 30.0, 30.0):
            with torch.no_grad():
                for one in training.model.parameters():
                    one.copy_(size * torch.randn(one.shape, generator=rng))
            training.backward(rows[:6], labels[:6])
            training.optimizer.clip_and_accumulate()
            gradient = torch.cat([one.summed_grad.flatten() for one in training.optimizer.params])
            point = torch.cat([one.detach().flatten() for one in training.optimizer.params])
            found.append((point.double(), gradient.double() / 6))
            training.optimizer._is_last_step_skipped = False
        return [(p - q, g - h) for p, g in found for q, h in found]

    @pytest.mark.parametrize(
        "classes, clip, known",
        [
            (2, 0.3, (0.01, 1.01)),
            (2, 1.5, (0.01, 1.01)),
            (3, 0.7, (0.01 - 1.0, 1.01)),  # an active clip may bend either way
            (3, 2.0, None),
        ],
    )
    @pytest.mark.parametrize("seed", range(2))
    def test_clipped_gradients_stay_in_the_ball(self, classes, clip, known, seed):
        """For two classes they are those of a convex smooth loss."""
        pairs = self.differences(self.made(classes, clip), seed)
        low, top = curvature(self.made(classes, clip).epoch().accountant.run())
        assert known is None or (low, top) == pytest.approx(known)
        for moved, turned in pairs:
            off = float((turned + 0.01 * moved - (low + top) / 2 * moved).norm())
            assert off <= (top - low) / 2 * float(moved.norm()) + 1e-5

    def test_decay_of_some_parameters_only(self):
        def without_decay_of_the_bias(parameters, *, lr, weight_decay):
            weight, bias = parameters
            groups = [{"params": [weight], "weight_decay": weight_decay}, {"params": [bias]}]
            return torch.optim.SGD(groups, lr=lr, momentum=0.9)

        loader, settings = loader_of(shuffle=False), {"lr": 0.05, "decay": 0.01}
        training = Training(loader, optimizer=without_decay_of_the_bias, **settings).epoch()
        run = training.accountant.run()
        assert curvature(run) == (0.0, 1.01)
        assert run.releases == "last-iterate"  # not every iterate is charged for
