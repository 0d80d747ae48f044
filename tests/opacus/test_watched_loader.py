"""Batches that were drawn are those of the steps, and are drawn by one rule; others are refused."""

from collections.abc import Mapping
from itertools import chain, islice

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import lastiterate as li
import lastiterate.opacus as lo
import lastiterate.torch as lt
from lastiterate.torch.repeated_rows import repeated_rows

from .trainings import BINARY, DELTA, Training, epsilon, loader_of, refused, unit_rows

UNUSED = "Poisson batch of .* rows was drawn and no step was made on it"
EPOCHS = 3  # of a draw of balanced batches
RULES = {
    lt.BallsAndBinsSampler: li.BallsAndBinsEachEpoch,
    lt.BalancedSampler: lambda examples, size: li.BalancedSampled(examples, size, EPOCHS),
    lt.PoissonSampler: li.PoissonSampled,
}
BALLS, BALANCED, POISSON = RULES
COMPOSITION = {
    BALLS: "composition/balls-and-bins",
    BALANCED: "composition/balanced",
    POISSON: "composition/sampled",
}
each_sampler = pytest.mark.parametrize("kind", RULES)


def sampled(kind, rows=None, batch_size=20, **settings):
    """A loader whose batches this sampler draws in secret."""
    rows = unit_rows(120) if rows is None else rows
    epochs = {"epochs": EPOCHS} if kind is BALANCED else {}
    sampler = kind(rows, batch_size, **epochs)
    return DataLoader(rows, batch_sampler=sampler, collate_fn=lt.EmptyBatches(rows), **settings)


def secret(kind, **settings):
    return Training(sampled(kind, **settings))


def poisson(kind="opacus", batch_size=20, **settings):
    """Poisson batches, drawn by Opacus or by our sampler."""
    if kind == "opacus":
        return Training(loader_of(batch_size=batch_size, **settings), poisson_sampling=True)
    return secret(POISSON, batch_size=batch_size)


def unused(training, batches=None):
    refused(training, UNUSED, batches)


class TestPoissonBatchesWithoutAStep:
    @pytest.mark.parametrize("kind", ["opacus", "lastiterate"])
    @pytest.mark.parametrize("least, batch_size", [(1, 1), (4, 2), (20, 20)])
    def test_skipped_by_size(self, kind, least, batch_size):
        training = poisson(kind, batch_size)
        passes = chain.from_iterable(training.loader for _ in range(3))
        unused(training, (one for one in passes if len(one[0]) >= least))

    @pytest.mark.parametrize("workers", [0, 1])
    def test_the_last_one_of_a_pass(self, workers):
        training = poisson(num_workers=workers)
        training.epoch(batch for k, batch in enumerate(training.loader) if k < 5)
        unused(training)

    def test_the_last_one_of_all(self):
        """Nothing but the question for epsilon comes after it."""
        training = poisson().epoch()
        assert training.accountant.reasons == ()
        training.epoch(batch for k, batch in enumerate(training.loader) if k < 5)
        with pytest.raises(lo.RefusedTraining, match=UNUSED):
            training.engine.get_epsilon(DELTA)

    def test_drawn_again_until_one_is_large(self):
        training = poisson()
        drawn = (next(iter(training.loader)) for _ in range(40))
        unused(training, (one for one in drawn if len(one[0]) >= 20))

    def test_a_pass_that_ends_at_a_small_one(self):
        training = poisson()
        training.epoch(islice(training.loader, 2))
        iterator = iter(training.loader)
        training.step(*next(iterator))
        next(iterator)  # on which no step is made
        unused(training, islice(training.loader, 2))

    def test_kept_and_sorted(self):
        training = poisson(batch_size=20)
        batches = sorted(training.loader, key=lambda one: len(one[0]))
        if [len(one[0]) for one in batches] == training.loader.batch_sampler.draws.sizes[0]:
            batches.reverse()
        refused(training, r"no step was made|rows are repeated", batches)

    @pytest.mark.parametrize("batch_size", [1, 20])
    def test_every_way_to_use_all_of_them(self, batch_size):
        training = poisson(batch_size=batch_size)
        steps = len(training.loader)
        next(iter(training.loader))  # one batch to look at
        training.epoch()
        with torch.no_grad():
            for rows, _ in training.loader:  # an evaluation
                training.model(rows)
        training.epoch(islice(training.loader, 3))
        for number, batch in enumerate(training.loader):
            training.step(*batch)
            training.engine.get_epsilon(DELTA) if number == 1 else None
            if number == 3:
                break
        training.epoch(list(training.loader))
        training.virtual()
        next(iter(training.loader))  # after the last step
        assert training.accountant.reasons == ()
        assert training.accountant.run().steps == 3 * steps + 7


class TestOtherBatchesThanAtFirst:
    def test_a_schedule_of_the_sample_rate(self):
        training = poisson().epoch()
        training.loader.batch_sampler.sample_rate *= 3
        refused(training, r"sample_rate=0\.5, and those of earlier")

    def test_one_batch_at_another_rate(self):
        """The rate is back before the step is made."""
        training = poisson().epoch()
        sampler, batches = training.loader.batch_sampler, iter(training.loader)
        training.step(*next(batches))
        sampler.sample_rate *= 3
        batch = next(batches)
        sampler.sample_rate /= 3
        refused(training, "sample_rate", [batch])

    def test_a_pass_without_steps_may_be_drawn_otherwise(self):
        training = poisson().epoch()
        training.loader.batch_sampler.sample_rate *= 3
        list(training.loader)
        training.loader.batch_sampler.sample_rate /= 3
        assert training.epoch().accountant.run().steps == 12

    @pytest.mark.parametrize(
        "name, value, why",
        [
            ("sampler", WeightedRandomSampler([1.0] * 120, 120), "WeightedRandomSampler"),
            ("sampler", RandomSampler(range(120), replacement=True), "several times"),
            ("sampler", RandomSampler(range(60)), "several times"),
            ("batch_size", 40, "size=40, and those of earlier steps"),
        ],
    )
    def test_another_sampler_inside(self, name, value, why):
        training = Training().epoch()
        setattr(training.loader.batch_sampler, name, value)
        refused(training, why)

    def test_a_data_set_that_grows(self):
        training = Training().epoch()
        training.loader.dataset.tensors = unit_rows(140).tensors
        refused(training, "examples=140")

    def test_an_engine_for_each_part_of_a_schedule(self):
        """As the refusal advises: with the same model, optimizer and loader."""
        first = Training().epoch()
        first.loader.batch_sampler.batch_size = 40
        plain = first.optimizer.original_optimizer
        second = Training(first.loader, model=first.model, optimizer=lambda *_, **__: plain)
        second.epochs(2)
        assert second.accountant.run().batches == li.ShuffledEachEpoch(120, 40)
        assert first.accountant.run().batches == li.ShuffledEachEpoch(120, 20)
        both = first.accountant.report().compose(second.accountant.report())
        assert both.epsilon(DELTA) > first.engine.get_epsilon(DELTA)

    def test_two_models_on_the_same_batches(self):
        loader = loader_of()
        first, second = Training(loader), Training(loader)
        for _ in range(2):
            for batch in loader:
                first.step(*batch)
                second.step(*batch)
        assert first.accountant.run() == second.accountant.run()
        assert first.accountant.reasons == second.accountant.reasons == ()

    def test_another_loader_than_the_one_that_was_made(self):
        """Left to make Poisson batches, and then trained on shuffled ones: a common mistake."""
        original = loader_of()
        refused(Training(original, poisson_sampling=True), "iterate over that loader", original)

    def test_a_pass_that_only_looks_is_none_that_trains(self):
        training = Training().epoch()
        assert len(list(training.loader)) == 6
        assert training.epoch().accountant.reasons == ()


class Sorted(lt.BallsAndBinsSampler):
    """A subclass, which may draw anything."""

    def __iter__(self):
        return iter([[0, 0]] * 6)


UNIT = unit_rows(120)
KEY = {"shared_key": bytes(32)}


class TestLoadersThatAreRefused:
    @pytest.mark.parametrize(
        "settings, why",
        [
            ({"sampler": WeightedRandomSampler([1.0] * 120, 120)}, "WeightedRandomSampler"),
            ({"sampler": RandomSampler(UNIT, replacement=True)}, "several times into one batch"),
            ({"sampler": RandomSampler(UNIT, num_samples=240)}, "several times into one batch"),
            ({"sampler": SubsetRandomSampler(range(60))}, "SubsetRandomSampler"),
            ({"batch_sampler": [[0, 0, 1]]}, "drawn by a list"),
            ({"batch_sampler": lt.BallsAndBinsSampler(UNIT, 20, **KEY)}, "the same batches again"),
            ({"batch_sampler": lt.BallsAndBinsSampler(119, 20)}, "another data set"),
            (
                {"batch_sampler": lt.BallsAndBinsSampler(UNIT, 20, ranks=2, **KEY)},
                "distributed",
            ),
            ({"batch_sampler": Sorted(UNIT, 20)}, "Sorted"),
        ],
    )
    def test_by_their_samplers(self, settings, why):
        with pytest.raises(lo.RefusedTraining, match=why):
            Training(loader_of(**settings))

    def test_with_empty_batches_that_are_made_up(self):
        with pytest.raises(lo.RefusedTraining, match="rand_on_empty"):
            Training(poisson_sampling=True, rand_on_empty=True)


class _Recorded(Training):
    """A training that keeps the numbers of the rows of every step."""

    def __init__(self, loader, **settings):
        self.batches = []
        super().__init__(loader, **settings)

    def epoch(self):
        for pixels, labels, numbers in self.loader:
            self.step(pixels, labels)
            self.batches.append(numbers.tolist())
        return self


def of_digits(kind, batch_size=60):
    """A small network trained on 600 images in batches that are drawn in secret."""
    images, labels = load_digits(return_X_y=True)
    pixels = torch.tensor(images[:600] / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    rows = TensorDataset(pixels, torch.tensor(labels[:600]), torch.arange(600))
    layers = [nn.Conv2d(1, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(36, 10)]
    lo.register()
    loader = sampled(kind, rows, batch_size)
    return _Recorded(loader, model=nn.Sequential(*layers), clip=1.0, noise=1.0)


class TestSecretSamplers:
    @each_sampler
    def test_what_ran_is_what_is_charged(self, kind):
        training = of_digits(kind).epochs(3)
        with pytest.warns(UserWarning, match="the loss is not stated"):
            report = training.accountant.report()
        rule = RULES[kind](600, 60)
        assert report.run.batches == rule
        assert report.run.steps == len(training.batches) == 30
        drawn = training.loader.batch_sampler.draws.sizes
        assert [size for one in drawn for size in one] == [len(b) for b in training.batches]
        assert all(len(set(batch)) == len(batch) for batch in training.batches)
        each = {BALLS: 10, BALANCED: 30}.get(kind, 31)  # steps in which all are seen as often
        for start in range(0, 31 - each, each):
            rows = sorted(chain(*training.batches[start : start + each]))
            assert rows == sorted([*range(600)] * (each // 10))
        described = li.TrainingRun.from_dp_sgd(
            loss=li.Loss(convex=False),
            batches=rule,
            clip_norm=1.0,
            noise_multiplier=1.0,
            steps=30,
            step_size=1.0,
            adjacency="zero-out",
            releases="every-iterate",
        )
        assert report.bound == COMPOSITION[kind]
        assert report.epsilon(DELTA) == pytest.approx(epsilon(described), rel=1e-9)
        if kind is not POISSON:
            assert report.epsilon(DELTA) < epsilon(
                described.replace(batches=RULES[POISSON](600, 60))
            )

    @each_sampler
    def test_empty_batches_are_steps_of_noise_alone(self, kind):
        training = of_digits(kind, batch_size=1)
        sampler = training.loader.batch_sampler
        sampler._batches = lambda number, drawn: iter([[], [5], []])
        before = [one.detach().clone() for one in training.model.parameters()]
        training.epoch()
        assert [len(batch) for batch in training.batches] == [0, 1, 0]
        for old, new in zip(before, training.model.parameters(), strict=True):
            assert torch.isfinite(new).all()
            assert not torch.equal(old, new)

    @pytest.mark.parametrize("kind", [BALLS, POISSON])
    def test_the_last_iterate_of_a_linear_layer_costs_less_than_all(self, kind):
        report = secret(kind).epochs(12).accountant.report()
        assert report.run.releases == "last-iterate"
        assert report.run.batches == RULES[kind](120, 20)
        assert report.bound.startswith("random-order/")
        assert report.epsilon(DELTA) < report.all[COMPOSITION[kind]].epsilon(DELTA)

    @pytest.mark.parametrize("kind, per_pass", [(BALLS, 20), (POISSON, 17)])
    def test_a_divisor_that_opacus_rounds(self, kind, per_pass):
        """Of 125 examples in 6 or 7 batches of 20 on average, Opacus divides by 20 or 17."""
        run = secret(kind, rows=unit_rows(125)).epochs(2).accountant.run()
        assert run.batches == RULES[kind](125, 20)
        assert run.step_size == pytest.approx(0.5 * 20 / per_pass)

    def test_states_go_on_with_the_same_rule(self):
        training, other = secret(BALLS).epochs(2), secret(BALLS)
        other.accountant.load_state_dict(training.accountant.state_dict())
        assert other.accountant.run() == training.accountant.run()
        with pytest.raises(lo.RefusedTraining, match="other batches"):
            secret(POISSON).accountant.load_state_dict(training.accountant.state_dict())

    def test_the_last_pass_may_be_cut(self):
        run = secret(BALLS).epoch().epoch(batches=2).accountant.run()
        assert (run.steps, run.batches) == (8, li.BallsAndBinsEachEpoch(120, 20))

    @pytest.mark.parametrize("kind, positions", [(BALLS, (1, 3)), (BALANCED, tuple(range(1, 9)))])
    def test_an_unfinished_pass_is_charged_without_amplification(self, kind, positions):
        """Balls and bins once in each pass, balanced batches as if an example were in all."""
        training = secret(kind).epoch(batches=2).epoch()
        with pytest.warns(UserWarning, match="not finished"):
            report = training.accountant.report()
        assert report.run.releases == "every-iterate"
        assert report.run.batches.positions == positions

    def test_an_unfinished_pass_of_poisson_batches_costs_its_steps(self):
        training = secret(POISSON)
        run = training.epoch(islice(training.loader, 2)).epoch().accountant.run()
        assert (run.steps, run.batches) == (8, li.PoissonSampled(120, 20))

    @pytest.mark.parametrize("epochs, regular", [(1, False), (3, True)])
    def test_a_new_sampler_in_the_middle_of_a_draw(self, epochs, regular):
        other = secret(BALANCED).continued(secret(BALANCED).epochs(epochs)).epoch()
        run = other.accountant.run()
        assert run.steps == 6 * (epochs + 1)
        assert (run.batches == li.BalancedSampled(120, 20, EPOCHS)) == regular
        assert regular or run.batches.positions == tuple(range(1, 13))

    @pytest.mark.parametrize("looks", ["before it is watched", "before a step", "between passes"])
    def test_looks_at_balanced_batches(self, looks):
        loader = sampled(BALANCED)
        if looks == "before it is watched":
            next(iter(loader))
        training = Training(loader)
        if looks == "before a step":
            next(iter(training.loader))
        training.epoch()
        if looks == "between passes":
            next(iter(training.loader))
        assert training.epoch().accountant.run().batches.positions == tuple(range(1, 13))

    def test_looks_at_all_passes_of_a_draw_cost_nothing(self):
        training = secret(BALANCED)
        for _ in range(EPOCHS):
            next(iter(training.loader))
        assert training.epoch().accountant.run().batches == RULES[BALANCED](120, 20)

    def test_another_loader_in_the_middle_of_a_pass_begins_one(self):
        training, other = (
            Training(loader_of(num_workers=1)).epoch(batches=2),
            loader_of(num_workers=1),
        )
        training.accountant.watch(other)
        training.epoch(other, batches=4)
        assert training.accountant.run().batches.positions == (1, 3)

    @each_sampler
    def test_batches_that_are_kept_for_a_second_pass_are_refused(self, kind):
        training = secret(kind)
        kept = list(training.loader)
        refused(training.epoch(kept), "more steps", kept)

    @each_sampler
    def test_two_passes_at_once_are_refused(self, kind):
        training = secret(kind)
        first, second = iter(training.loader), iter(training.loader)
        next(first), next(second)
        with pytest.raises(lo.RefusedTraining, match="one iterator at a time"):
            next(first)

    @each_sampler
    def test_workers_load_the_batches_that_are_charged(self, kind):
        run = secret(kind, num_workers=2).epochs(2).accountant.run()
        assert (run.steps, run.batches) == (12, RULES[kind](120, 20))

    def test_poisson_batches_of_opacus_replace_those_of_a_sampler(self):
        loader = DataLoader(UNIT, batch_sampler=lt.BallsAndBinsSampler(UNIT, 20))
        run = Training(loader, poisson_sampling=True).epoch().accountant.run()
        assert run.batches == li.PoissonSampled(120, 20)


class Wrapped(Dataset):
    """A data set with a transform, as many people write it."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        rows, label = self.dataset[index]
        return -rows, label


class Longer(Dataset):
    """Goes through a data set several times, which it keeps under any name."""

    def __init__(self, rows, times, name):
        setattr(self, name, rows)
        self.name, self.times, self.itself = name, times, self

    def __len__(self):
        return self.times * len(getattr(self, self.name))

    def __getitem__(self, index):
        rows = getattr(self, self.name)
        return rows[index % len(rows)]


class Chosen(Dataset):
    """Rows by indices that it keeps, as in a bootstrap; of a data set, or of tensors."""

    def __init__(self, rows, idx):
        self.rows, self.idx = rows, idx

    def __len__(self):
        return len(self.idx)

    def __getitem__(self, index):
        row = self.rows[self.idx[index]]
        return row if isinstance(row, tuple) else (row, 0)


def part(begin, end, *, columns_first=False):
    rows, labels = (one[begin:end] for one in (COLUMNS if columns_first else ROWS).tensors)
    return TensorDataset(rows, labels)


class Own(Dataset):
    """A data set of its first attribute, as many people write it."""

    def __init__(self, **kept):
        vars(self).update(kept)
        self.first = next(iter(kept))

    def __len__(self):
        return len(vars(self)[self.first])

    def __getitem__(self, index):
        return vars(self)[self.first][index]


ROWS = UNIT
PAIRS = list(ROWS)
PAIR, ONE, NUMBERS, BLANK = PAIRS[0], torch.tensor(1), [0.5, 0.5, 0.0, 0.0], [0] * 9
ARRAY = np.random.default_rng(0).normal(size=(120, 4))
COLUMNS = TensorDataset(ROWS.tensors[0].t().contiguous().t(), ROWS.tensors[1])
REPEATED = {
    "a rare row, 20 times": (Subset(ROWS, [3] * 20 + list(range(4, 120))), 20),
    "the data set, 5 times": (ConcatDataset([ROWS] * 5), 5),
    "with a part of a part": (ConcatDataset([ROWS, Subset(Subset(ROWS, range(60)), [0, 3])]), 2),
    "counted from the end": (Subset(ROWS, [119, -1, 0]), 2),
    "with augmented copies": (ConcatDataset([ROWS, Wrapped(ROWS), Wrapped(ROWS)]), 3),
    "wrapped twice": (ConcatDataset([TensorDataset(*ROWS.tensors), ROWS]), 2),
    "a subset of repetitions": (Subset(ConcatDataset([ROWS, ROWS]), [0, 120, 7]), 2),
    "pairs": (StackDataset(ROWS, Subset(ROWS, range(119, -1, -1))), 2),
    "a tensor of indices": (Subset(ROWS, torch.tensor([1, 1, 2])), 2),
    "the same pairs": (StackDataset(ROWS, ROWS), 1),
    "a wrapper that repeats": (Longer(ROWS, 5, "dataset"), 5),
    "one with another name": (Longer(ROWS, 3, "base"), 3),
    "two wrappings": (ConcatDataset([Longer(ROWS, 1, "base"), Longer(ROWS, 2, "inner")]), 3),
    "chosen by indices, as many": (Chosen(ROWS, [0] * 100 + list(range(20))), 101),
    "chosen by indices, more": (Chosen(ROWS, torch.tensor([7] * 9 + list(range(120)))), 10),
    "chosen by indices, fewer": (Chosen(ROWS, np.array([3, 3, -117])), 3),
    "chosen of a tensor": (Chosen(ROWS.tensors[0], [5] * 7 + list(range(5))), 7),
    "chosen by the second": (Own(order=[*range(4)], indices=[1, 1, 1, 2], rows=ROWS), 3),
    "chosen by objects": (Own(idx=[np.int32(3), np.int32(3)], rows=ROWS), 2),
    "labels named so": (Own(rows=PAIRS, label_ids=[0, 1] * 60, classes=["a", "b"]), 1),
    "ids beside a data set": (Own(dataset=ROWS, speaker_ids=[7] * 120), 1),
    "chosen once": (Chosen(ROWS, list(range(119, -1, -1))), 1),
    "overlapping slices": (ConcatDataset([part(0, 100), part(20, 120)]), 2),
    "slices by columns": (
        ConcatDataset([part(0, 90, columns_first=True), part(80, 120, columns_first=True)]), 2),
    "slices that touch": (ConcatDataset([part(0, 60), part(60, 120)]), 1),
    "labels first": (ConcatDataset([ROWS, TensorDataset(*ROWS.tensors[::-1])]), 2),
    "labels in common": (
        ConcatDataset([ROWS, TensorDataset(unit_rows(120).tensors[0], ROWS.tensors[1])]), 1),
    "one label for all": (TensorDataset(torch.zeros(1).expand(120), ROWS.tensors[0]), 1),
    "one row in a list": ([PAIR] * 100, 100),
    "a tuple of rows": ((PAIR, PAIRS[1], PAIR), 2),
    "one of a list more often": (PAIRS + [PAIRS[7]] * 4, 5),
    "one list twice": (ConcatDataset([PAIRS, PAIRS]), 2),
    "a copy of a list": (ConcatDataset([PAIRS, list(PAIRS)]), 2),
    "a part of a list with repetitions": (Subset([*PAIRS, PAIR], [0, 120, 1, 1, -1]), 3),
    "a list that names repeat": (StackDataset(rows=[PAIR] * 3, number=range(3)), 3),
    "other labels": ([(PAIR[0], number) for number in range(9)], 9),
    "other labels that come first": ([(torch.tensor(k), PAIR[0]) for k in range(9)], 9),
    "columns by name": ([{"label": 0, "row": PAIR[0]} for _ in range(9)], 9),
    "numbers in lists": ([(NUMBERS, label) for label in range(9)], 9),
    "a list and its tensor": (ConcatDataset([list(ROWS.tensors[0]), ROWS]), 2),
    "an expanded tensor": (
        TensorDataset(ROWS.tensors[0][:1].expand(100, -1), torch.zeros(100)), 100),
    "an expanded tensor in a list": (list(ROWS.tensors[0][0].expand(100, -1)), 100),
    "an expanded array": (np.broadcast_to(np.ones(4), (100, 4)), 100),
    "an expanded tensor without a data set": (ROWS.tensors[0][0].expand(100, -1), 100),
    "an array twice": (ConcatDataset([ARRAY, ARRAY.copy(), ARRAY[3:]]), 2),
    "by number": ({0: PAIR, 1: PAIRS[1], 2: PAIR}, 2),
    "in an own data set": (Own(rows=[PAIR] * 100), 100),
    "beside labels": (Own(labels=list(range(9)), rows=[NUMBERS] * 9), 9),
    "of a tensor in own data sets": (
        ConcatDataset([Own(x=ROWS.tensors[0], y=ROWS.tensors[1]), Own(x=ROWS.tensors[0])]), 2),
    "longer than what is kept, with an order": (
        Own(order=[k % 60 for k in range(120)], noise=torch.randn(120, 9), base=part(0, 60)), 2),
    "pairs in a list": (PAIRS, 1),
    "labels of tensors in common": ([(row.clone(), ONE) for row, _ in PAIRS], 1),
    "labels of tensors in a list": (StackDataset(ROWS, [ONE] * 120), 1),
    "labels of tensors as an attribute": (Own(labels=[ONE] * 120, rows=ROWS.tensors[0]), 1),
    "numbers": ([1, 0.5, "one", None, np.float32(2.0)] * 3, 1),
    "equal rows": ([(PAIR[0].clone(), 0) for _ in range(9)], 1),
    "a constant for all": (
        TensorDataset(torch.arange(4.0).expand(120, 4), ROWS.tensors[0], ROWS.tensors[1]), 1),
    "texts, which are kept once if they are equal": (
        [("the same text", ONE)] + [(text, ONE) for text in ["the same text"] * 8], 1),
    "images as lists with blank lines": ([[BLANK, [k] * 9, BLANK] for k in range(9)], 1),
    "settings in common": ([(row.clone(), BINARY) for row, _ in PAIRS], 1),
    "objects with labels in common": ([(object(), ONE) for _ in range(9)], 1),
    "a vocabulary in a list": (Own(rows=ROWS.tensors[0], auxiliary=[part(0, 60)]), 1),
    "classes": (Own(rows=ROWS.tensors[0], classes=[ONE, ONE]), 1),
    "no rows": ([], 0),
    "rows without numbers": ([()] * 3, 1),
    "nothing twice": (Subset(ROWS, range(0, 120, 2)), 1),
    "two halves": (ConcatDataset(random_split(ROWS, [50, 70])), 1),
    "two parts of a repetition": (Subset(ConcatDataset([ROWS, ROWS]), [0, 121, 7]), 1),
    "none": (Subset(ROWS, []), 0),
}  # fmt: skip


class TestRowsThatAreInTheDataSetSeveralTimes:
    @pytest.mark.parametrize("name", REPEATED)
    def test_their_number(self, name):
        dataset, times = REPEATED[name]
        assert repeated_rows(dataset) == times
        assert repeated_rows(Wrapped(dataset)) == times

    @pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
    def test_beside_tensors_that_have_no_rows_in_memory(self):
        nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.strided)
        for other in (nested, torch.eye(2).to_sparse(), torch.zeros(2, 3, device="meta")):
            assert repeated_rows(Own(rows=PAIRS[:2], other=other)) == 1
            assert repeated_rows(Own(rows=[PAIR, PAIR], other=other)) == 2
            assert repeated_rows([other, other]) == 2

    def test_rows_that_make_their_parts_when_they_are_asked(self):
        class Lazy(Mapping):
            def __getitem__(self, name):
                return np.zeros(9)

            def __iter__(self):
                return iter(["row"])

            def __len__(self):
                return 1

        row = Lazy()
        assert repeated_rows([Lazy() for _ in range(9)]) == 1
        assert repeated_rows([row, Lazy(), row]) == 2

    def trained(self, dataset, sampling=False, **settings):
        lo.register(loss=BINARY, **settings)
        loader = DataLoader(dataset, batch_size=20, shuffle=True, drop_last=True)
        return Training(loader, poisson_sampling=sampling).epoch()

    @pytest.mark.parametrize("sampling", [False, True])
    def test_are_refused_if_a_person_has_fewer(self, sampling):
        dataset, times = REPEATED["a rare row, 20 times"]
        with pytest.raises(lo.RefusedTraining, match="a row is at least 20 times in the data set"):
            self.trained(dataset, sampling, examples_per_person=19)
        run = self.trained(dataset, sampling, examples_per_person=times).accountant.run()
        assert run.examples_per_person == 20

    def test_in_a_list(self):
        why = r"a row is at least 3 times.*if they are copies"
        with pytest.raises(lo.RefusedTraining, match=why):
            self.trained(PAIRS + [PAIRS[7]] * 2)
        assert self.trained(PAIRS).accountant.run().steps == 6

    def test_a_vocabulary_that_is_shorter(self):
        """It may be what the rows come from, and the message says how to say that it is not."""
        kept = Own(rows=PAIRS, vocabulary=part(0, 60))
        with pytest.raises(lo.RefusedTraining, match=r"self\.auxiliary = \[\.\.\]"):
            self.trained(kept)
        kept.auxiliary = [vars(kept).pop("vocabulary")]
        assert self.trained(kept).accountant.run().steps == 6

    def test_indices_that_are_changed_later(self):
        dataset = Subset(ROWS, list(range(60)))
        training = self.trained(dataset, examples_per_person=1)
        dataset.indices[1] = 0
        refused(training, "a row is at least 2 times")
