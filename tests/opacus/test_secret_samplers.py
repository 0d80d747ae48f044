"""A small network trained with each sampler: what ran is what is charged, and bad loops are not."""

from itertools import chain, islice

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lastiterate as li
import lastiterate.opacus as lo
import lastiterate.torch as lt

from .trainings import Training, loader_of, unit_rows

DELTA = 1e-5
EPOCHS = 3  # of a draw of balanced batches
RULES = {
    lt.BallsAndBinsSampler: li.BallsAndBinsEachEpoch,
    lt.BalancedSampler: lambda examples, size: li.BalancedSampled(examples, size, EPOCHS),
    lt.PoissonSampler: li.PoissonSampled,
}
COMPOSITION = {
    lt.BallsAndBinsSampler: "composition/balls-and-bins",
    lt.BalancedSampler: "composition/balanced",
    lt.PoissonSampler: "composition/sampled",
}


def _network():
    return nn.Sequential(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 10))


def _digits(rows=600):
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images[:rows] / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return TensorDataset(pixels, torch.tensor(labels[:rows]), torch.arange(rows))


class _Recorded(Training):
    """A training that keeps the numbers of the rows of every step."""

    def __init__(self, loader, **settings):
        self.batches = []
        super().__init__(loader, **settings)

    def epoch(self, **settings):
        for pixels, labels, numbers in self.loader:
            self.backward(pixels, labels)
            self.optimizer.step()
            self.batches.append(numbers.tolist())
        return self


def _sampler(kind, rows, batch_size):
    settings = {"epochs": EPOCHS} if kind is lt.BalancedSampler else {}
    return kind(rows, batch_size, **settings)


def _network_training(kind, batch_size=60, **settings):
    rows = _digits()
    sampler = _sampler(kind, rows, batch_size)
    loader = DataLoader(rows, batch_sampler=sampler, collate_fn=lt.EmptyBatches(rows))
    return _Recorded(loader, model=_network(), clip=1.0, noise=1.0, **settings), sampler


def _linear_training(kind, examples=120, batch_size=20, **settings):
    rows = unit_rows(examples)
    sampler = _sampler(kind, rows, batch_size)
    loader = DataLoader(rows, batch_sampler=sampler, collate_fn=lt.EmptyBatches(rows), **settings)
    return Training(loader)


class TestNetworks:
    @pytest.fixture(autouse=True)
    def registered(self):
        return lo.register()

    @pytest.mark.parametrize("kind", RULES)
    def test_what_ran_is_what_is_charged(self, kind):
        training, sampler = _network_training(kind)
        training.epochs(3)
        with pytest.warns(UserWarning, match="the loss is not stated"):
            report = training.accountant.report()
        run = report.run
        assert run.batches == RULES[kind](600, 60) == sampler.rule
        assert run.steps == len(training.batches) == 30
        drawn = training.loader.batch_sampler.draws.sizes
        assert [size for one in drawn for size in one] == [len(b) for b in training.batches]
        assert all(len(set(batch)) == len(batch) for batch in training.batches)
        if kind is lt.BallsAndBinsSampler:
            for start in range(0, 30, 10):
                rows = sorted(chain(*training.batches[start : start + 10]))
                assert rows == list(range(600))
        if kind is lt.BalancedSampler:
            rows = sorted(chain(*training.batches))
            assert rows == sorted([*range(600)] * 3)
        described = li.TrainingRun.from_dp_sgd(
            loss=li.Loss(convex=False),
            batches=RULES[kind](600, 60),
            clip_norm=1.0,
            noise_multiplier=1.0,
            steps=30,
            step_size=1.0,
            adjacency="zero-out",
            releases="every-iterate",
        )
        assert report.bound == COMPOSITION[kind]
        assert report.epsilon(DELTA) == pytest.approx(
            li.account(described).epsilon(DELTA), rel=1e-9
        )

    def test_less_than_poisson_and_than_shuffling(self):
        epsilons = {}
        for kind in RULES:
            training, _ = _network_training(kind)
            with pytest.warns(UserWarning, match="the loss is not stated"):
                epsilons[kind] = training.epochs(3).engine.get_epsilon(DELTA)
        balls, poisson = epsilons[lt.BallsAndBinsSampler], epsilons[lt.PoissonSampler]
        assert balls < poisson
        assert epsilons[lt.BalancedSampler] < poisson

    @pytest.mark.parametrize("kind", RULES)
    def test_empty_batches_are_steps_of_noise_alone(self, kind):
        training, sampler = _network_training(kind, batch_size=1)
        sampler._batches = lambda number, drawn: iter([[], [5], []])
        before = [one.detach().clone() for one in training.model.parameters()]
        training.epoch()
        assert [len(batch) for batch in training.batches] == [0, 1, 0]
        for old, new in zip(before, training.model.parameters(), strict=True):
            assert torch.isfinite(new).all()
            assert not torch.equal(old, new)


class TestLinearLayers:
    @pytest.fixture(autouse=True)
    def registered(self):
        return lo.register(loss=lo.softmax(feature_bound=1.0, classes=2))

    @pytest.mark.parametrize("kind", [lt.BallsAndBinsSampler, lt.PoissonSampler])
    def test_the_last_iterate_costs_less_than_all(self, kind):
        training = _linear_training(kind).epochs(12)
        report = training.accountant.report()
        assert report.run.releases == "last-iterate"
        assert report.run.batches == RULES[kind](120, 20)
        assert report.bound.startswith("random-order/")
        assert report.epsilon(DELTA) < report.all[COMPOSITION[kind]].epsilon(DELTA)

    def test_a_divisor_that_opacus_rounds(self):
        """Of 125 examples in 6 batches of 20 on average, Opacus divides by 20."""
        run = _linear_training(lt.BallsAndBinsSampler, examples=125).epochs(2).accountant.run()
        assert run.batches == li.BallsAndBinsEachEpoch(125, 20)
        run = _linear_training(lt.PoissonSampler, examples=125).epochs(2).accountant.run()
        assert run.batches == li.PoissonSampled(125, 20)
        assert run.step_size == pytest.approx(0.5 * 20 / 17)  # 7 steps a pass

    def test_states_go_on_with_the_same_rule(self):
        training = _linear_training(lt.BallsAndBinsSampler).epochs(2)
        other = _linear_training(lt.BallsAndBinsSampler)
        other.accountant.load_state_dict(training.accountant.state_dict())
        assert other.accountant.run() == training.accountant.run()
        poisson = _linear_training(lt.PoissonSampler)
        with pytest.raises(lo.RefusedTraining, match="other batches"):
            poisson.accountant.load_state_dict(training.accountant.state_dict())

    def test_the_last_pass_may_be_cut(self):
        training = _linear_training(lt.BallsAndBinsSampler).epoch().epoch(batches=2)
        assert training.accountant.run().steps == 8
        assert training.accountant.run().batches == li.BallsAndBinsEachEpoch(120, 20)


class TestBadLoops:
    @pytest.fixture(autouse=True)
    def registered(self):
        return lo.register(loss=lo.softmax(feature_bound=1.0, classes=2))

    def test_an_unfinished_pass_is_charged_without_amplification(self):
        training = _linear_training(lt.BallsAndBinsSampler).epoch(batches=2).epoch()
        with pytest.warns(UserWarning, match="not finished"):
            report = training.accountant.report()
        assert report.run.releases == "every-iterate"
        assert report.run.batches.positions == (1, 3)  # once in each pass
        whole = _linear_training(lt.BallsAndBinsSampler).epochs(2).accountant.run()
        every = li.account(whole.replace(releases="every-iterate"))
        assert report.epsilon(DELTA) > every.epsilon(DELTA)

    def test_balanced_batches_that_were_skipped_are_charged_as_if_an_example_were_in_all(self):
        training = _linear_training(lt.BalancedSampler).epoch(batches=2).epoch()
        with pytest.warns(UserWarning, match="not finished"):
            report = training.accountant.report()
        assert report.run.batches.positions == tuple(range(1, 9))

    @pytest.mark.parametrize("epochs, regular", [(1, False), (3, True)])
    def test_a_new_sampler_in_the_middle_of_a_draw_is_charged_likewise(self, epochs, regular):
        training = _linear_training(lt.BalancedSampler).epochs(epochs)
        other = _linear_training(lt.BalancedSampler)
        other.model.load_state_dict(training.model.state_dict())
        other.accountant.load_state_dict(training.accountant.state_dict())
        other.epoch()
        run = other.accountant.run()
        assert run.steps == 6 * (epochs + 1)
        assert (run.batches == li.BalancedSampled(120, 20, EPOCHS)) == regular
        assert regular or run.batches.positions == tuple(range(1, 13))

    @pytest.mark.parametrize("looks", ["before it is watched", "before a step", "between passes"])
    def test_looks_at_balanced_batches_are_charged_likewise(self, looks):
        rows = unit_rows(120)
        sampler = _sampler(lt.BalancedSampler, rows, 20)
        loader = DataLoader(rows, batch_sampler=sampler, collate_fn=lt.EmptyBatches(rows))
        if looks == "before it is watched":
            next(iter(loader))
        training = Training(loader)
        if looks == "before a step":
            next(iter(training.loader))
        training.epoch()
        if looks == "between passes":
            next(iter(training.loader))
        training.epoch()
        assert training.accountant.run().batches.positions == tuple(range(1, 13))

    def test_looks_at_all_passes_of_a_draw_cost_nothing(self):
        training = _linear_training(lt.BalancedSampler)
        for _ in range(EPOCHS):
            next(iter(training.loader))
        training.epoch()
        assert training.accountant.run().batches == li.BalancedSampled(120, 20, EPOCHS)

    def test_another_loader_in_the_middle_of_a_pass_begins_one(self):
        training = Training(loader_of(num_workers=1)).epoch(batches=2)
        other = loader_of(num_workers=1)
        training.accountant.watch(other)
        training.epoch(batches=4, loader=other)
        assert training.accountant.run().batches.positions == (1, 3)

    def test_a_shared_key_is_refused(self):
        rows = unit_rows(120)
        sampler = lt.BallsAndBinsSampler(rows, 20, shared_key=bytes(32))
        with pytest.raises(lo.RefusedTraining, match="the same batches again"):
            Training(DataLoader(rows, batch_sampler=sampler, collate_fn=lt.EmptyBatches(rows)))

    def test_an_unfinished_pass_of_poisson_batches_costs_its_steps(self):
        training = _linear_training(lt.PoissonSampler)
        training.epoch(loader=islice(training.loader, 2)).epoch()
        assert training.accountant.run().batches == li.PoissonSampled(120, 20)
        assert training.accountant.run().steps == 8

    @pytest.mark.parametrize("kind", RULES)
    def test_batches_that_are_kept_for_a_second_pass_are_refused(self, kind):
        training = _linear_training(kind)
        kept = list(training.loader)
        training.epoch(loader=kept)
        with pytest.raises(lo.RefusedTraining, match="more steps"):
            training.epoch(loader=kept)

    @pytest.mark.parametrize("kind", RULES)
    def test_two_passes_at_once_are_refused(self, kind):
        training = _linear_training(kind)
        first, second = iter(training.loader), iter(training.loader)
        next(first), next(second)
        with pytest.raises(lo.RefusedTraining, match="one iterator at a time"):
            next(first)

    @pytest.mark.parametrize("kind", RULES)
    def test_workers_load_the_batches_that_are_charged(self, kind):
        training = _linear_training(kind, num_workers=2).epochs(2)
        run = training.accountant.run()
        assert run.steps == 12
        assert run.batches == RULES[kind](120, 20)

    def test_a_sampler_of_other_rows_is_refused(self):
        rows = unit_rows(120)
        loader = DataLoader(rows, batch_sampler=lt.BallsAndBinsSampler(119, 20))
        with pytest.raises(lo.RefusedTraining, match="another data set"):
            Training(loader)

    def test_one_of_several_ranks_is_refused(self):
        rows = unit_rows(120)
        sampler = lt.BallsAndBinsSampler(rows, 20, ranks=2, shared_key=bytes(32))
        with pytest.raises(lo.RefusedTraining, match="distributed"):
            Training(DataLoader(rows, batch_sampler=sampler))

    def test_a_subclass_may_draw_anything(self):
        class Sorted(lt.BallsAndBinsSampler):
            def __iter__(self):
                return iter([[0, 0]] * 6)

        rows = unit_rows(120)
        with pytest.raises(lo.RefusedTraining, match="Sorted"):
            Training(DataLoader(rows, batch_sampler=Sorted(rows, 20)))

    def test_poisson_batches_of_opacus_replace_those_of_a_sampler(self):
        rows = unit_rows(120)
        loader = DataLoader(rows, batch_sampler=lt.BallsAndBinsSampler(rows, 20))
        training = Training(loader, poisson_sampling=True).epochs(1)
        assert training.accountant.run().batches == li.PoissonSampled(120, 20)
