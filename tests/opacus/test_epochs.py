"""Batches that were drawn are those of the steps, and are drawn by one rule; others are refused."""

import math
from collections.abc import Mapping
from itertools import chain, islice

import numpy as np
import pytest
import torch
from opacus.utils.batch_memory_manager import BatchMemoryManager
from scipy.integrate import quad
from scipy.stats import norm
from torch import nn
from torch.utils.data import (
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    StackDataset,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    random_split,
)

import lastiterate as li
import lastiterate.opacus as lo
import lastiterate.torch as lt
from lastiterate.torch.repeated_rows import repeated_rows

from .trainings import Training, loader_of, unit_rows

BINARY = lo.softmax(feature_bound=1.0, classes=2)
UNUSED = "Poisson batch of .* rows was drawn and no step was made on it"


@pytest.fixture(autouse=True)
def registered():
    return lo.register(loss=BINARY)


def poisson(kind="opacus", examples=120, batch_size=20, **settings):
    if kind == "opacus":
        return Training(loader_of(examples, batch_size), poisson_sampling=True, **settings)
    rows = unit_rows(examples)
    sampler = lt.PoissonSampler(rows, batch_size)
    loader = DataLoader(rows, batch_sampler=sampler, collate_fn=lt.EmptyBatches(rows))
    return Training(loader, **settings)


def made_steps(training, batches):
    for rows, labels in batches:
        training.backward(rows, labels)
        training.optimizer.step()


class TestPoissonBatchesWithoutAStep:
    @pytest.mark.parametrize("kind", ["opacus", "lastiterate"])
    @pytest.mark.parametrize("least, batch_size", [(1, 1), (4, 2), (20, 20)])
    def test_skipped_by_size(self, kind, least, batch_size):
        training = poisson(kind, batch_size=batch_size)
        passes = chain.from_iterable(training.loader for _ in range(3))
        with pytest.raises(lo.RefusedTraining, match=UNUSED):
            made_steps(training, (one for one in passes if len(one[0]) >= least))

    @pytest.mark.parametrize("workers", [0, 1])
    def test_the_last_one_of_a_pass(self, workers):
        training = Training(loader_of(num_workers=workers), poisson_sampling=True)
        for number, batch in enumerate(training.loader):
            if number < 5:
                made_steps(training, [batch])
        with pytest.raises(lo.RefusedTraining, match=UNUSED):
            training.epoch()

    def test_the_last_one_of_all(self):
        """Nothing but the question for epsilon comes after it."""
        training = poisson().epochs(1)
        assert training.accountant.reasons == ()
        for number, batch in enumerate(training.loader):
            if number < 5:
                made_steps(training, [batch])
        with pytest.raises(lo.RefusedTraining, match=UNUSED):
            training.engine.get_epsilon(1e-5)

    def test_drawn_again_until_one_is_large(self):
        training = poisson()
        drawn = (next(iter(training.loader)) for _ in range(40))
        with pytest.raises(lo.RefusedTraining, match=UNUSED):
            made_steps(training, (one for one in drawn if len(one[0]) >= 20))

    def test_a_pass_that_ends_at_a_small_one(self):
        training = poisson()
        made_steps(training, islice(training.loader, 2))
        iterator = iter(training.loader)
        made_steps(training, [next(iterator)])
        next(iterator)  # on which no step is made
        with pytest.raises(lo.RefusedTraining, match=UNUSED):
            made_steps(training, islice(training.loader, 2))

    def test_kept_and_sorted(self):
        training = poisson(examples=1_200, batch_size=200)
        batches = sorted(training.loader, key=lambda one: len(one[0]))
        if [len(one[0]) for one in batches] == training.loader.batch_sampler.draws.sizes[0]:
            batches.reverse()
        with pytest.raises(lo.RefusedTraining, match=r"no step was made|rows are repeated"):
            made_steps(training, batches)

    @pytest.mark.parametrize("batch_size", [1, 20])
    def test_every_way_to_use_all_of_them(self, batch_size):
        training = poisson(batch_size=batch_size)
        steps = len(training.loader)
        next(iter(training.loader))  # one batch to look at
        training.epoch()
        with torch.no_grad():
            for rows, _ in training.loader:  # an evaluation
                training.model(rows)
        made_steps(training, islice(training.loader, 3))
        for number, batch in enumerate(training.loader):
            made_steps(training, [batch])
            training.engine.get_epsilon(1e-5) if number == 1 else None
            if number == 3:
                break
        made_steps(training, list(training.loader))
        with BatchMemoryManager(
            data_loader=training.loader, max_physical_batch_size=7, optimizer=training.optimizer
        ) as smaller:
            training.epoch(loader=smaller)
        next(iter(training.loader))  # after the last step
        assert training.accountant.reasons == ()
        assert training.accountant.run().steps == 3 * steps + 7

    def test_why_the_rate_of_those_that_are_not_empty_is_no_account(self):
        """Two rare examples with opposite gradients, each alone in half of the batches."""
        mu, epsilon, rate = 2.0, 1.0, 0.5

        def delta(p, q):
            least, most = -12.0, 12.0
            grid = lambda x: max(p(x) - math.exp(epsilon) * q(x), 0.0)  # noqa: E731
            return quad(grid, least, most, limit=400)[0]

        def mixed(*means):
            return lambda x: float(np.mean([norm.pdf(x, one) for one in means]))

        true = delta(mixed(mu, -mu), mixed(0.0, -mu))
        by_rate = delta(mixed(0.0, mu), mixed(0.0))
        assert true > 1.05 * by_rate
        # All draws as steps: one example, whose skipped batches add no noise.
        alone = rate * delta(mixed(mu), mixed(0.0))
        assert alone > 1.05 * by_rate


class TestOtherBatchesThanAtFirst:
    def test_a_schedule_of_the_sample_rate(self):
        training = poisson().epochs(1)
        training.loader.batch_sampler.sample_rate *= 3
        with pytest.raises(lo.RefusedTraining, match=r"sample_rate=0\.5, and those of earlier"):
            training.epoch()

    def test_one_batch_at_another_rate(self):
        """The rate is back before the step is made."""
        training = poisson().epochs(1)
        sampler = training.loader.batch_sampler
        batches = iter(training.loader)
        made_steps(training, [next(batches)])
        sampler.sample_rate *= 3
        batch = next(batches)
        sampler.sample_rate /= 3
        with pytest.raises(lo.RefusedTraining, match="sample_rate"):
            made_steps(training, [batch])

    def test_a_pass_without_steps_may_be_drawn_otherwise(self):
        training = poisson().epochs(1)
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
        training = Training(loader_of()).epochs(1)
        setattr(training.loader.batch_sampler, name, value)
        with pytest.raises(lo.RefusedTraining, match=why):
            training.epoch()

    def test_a_data_set_that_grows(self):
        training = Training(loader_of()).epochs(1)
        training.loader.dataset.tensors = unit_rows(140).tensors
        with pytest.raises(lo.RefusedTraining, match="examples=140"):
            training.epoch()

    def test_an_engine_for_each_part_of_a_schedule(self):
        """As the refusal advises: with the same model, optimizer and loader."""
        first = Training(loader_of()).epochs(1)
        loader, plain = first.loader, first.optimizer.original_optimizer
        loader.batch_sampler.batch_size = 40
        second = Training.__new__(Training)
        second.engine = first.engine.__class__(accountant="last-iterate")
        second.criterion = first.criterion
        second.model, second.optimizer, second.loader = second.engine.make_private(
            module=first.model,
            optimizer=plain,
            data_loader=loader,
            noise_multiplier=2.0,
            max_grad_norm=2.0,
            poisson_sampling=False,
        )
        second.epochs(2)
        assert second.accountant.run().batches == li.ShuffledEachEpoch(120, 40)
        assert first.accountant.run().batches == li.ShuffledEachEpoch(120, 20)
        both = first.accountant.report().compose(second.accountant.report())
        assert both.epsilon(1e-5) > first.engine.get_epsilon(1e-5)

    def test_two_models_on_the_same_batches(self):
        loader = loader_of()
        first, second = Training(loader), Training(loader)
        for _ in range(2):
            for rows, labels in loader:
                for training in (first, second):
                    training.backward(rows, labels)
                    training.optimizer.step()
        assert first.accountant.run() == second.accountant.run()
        assert first.accountant.reasons == second.accountant.reasons == ()


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


ROWS = unit_rows(120)
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
        ConcatDataset([part(0, 90, columns_first=True), part(80, 120, columns_first=True)]),
        2,
    ),
    "slices that touch": (ConcatDataset([part(0, 60), part(60, 120)]), 1),
    "labels first": (ConcatDataset([ROWS, TensorDataset(*ROWS.tensors[::-1])]), 2),
    "labels in common": (
        ConcatDataset([ROWS, TensorDataset(unit_rows(120).tensors[0], ROWS.tensors[1])]),
        1,
    ),
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
        TensorDataset(ROWS.tensors[0][:1].expand(100, -1), torch.zeros(100)),
        100,
    ),
    "an expanded tensor in a list": (list(ROWS.tensors[0][0].expand(100, -1)), 100),
    "an expanded array": (np.broadcast_to(np.ones(4), (100, 4)), 100),
    "an expanded tensor without a data set": (ROWS.tensors[0][0].expand(100, -1), 100),
    "an array twice": (ConcatDataset([ARRAY, ARRAY.copy(), ARRAY[3:]]), 2),
    "by number": ({0: PAIR, 1: PAIRS[1], 2: PAIR}, 2),
    "in an own data set": (Own(rows=[PAIR] * 100), 100),
    "beside labels": (Own(labels=list(range(9)), rows=[NUMBERS] * 9), 9),
    "of a tensor in own data sets": (
        ConcatDataset([Own(x=ROWS.tensors[0], y=ROWS.tensors[1]), Own(x=ROWS.tensors[0])]),
        2,
    ),
    "longer than what is kept, with an order": (
        Own(order=[k % 60 for k in range(120)], noise=torch.randn(120, 9), base=part(0, 60)),
        2,
    ),
    "pairs in a list": (PAIRS, 1),
    "labels of tensors in common": ([(row.clone(), ONE) for row, _ in PAIRS], 1),
    "labels of tensors in a list": (StackDataset(ROWS, [ONE] * 120), 1),
    "labels of tensors as an attribute": (Own(labels=[ONE] * 120, rows=ROWS.tensors[0]), 1),
    "numbers": ([1, 0.5, "one", None, np.float32(2.0)] * 3, 1),
    "equal rows": ([(PAIR[0].clone(), 0) for _ in range(9)], 1),
    "a constant for all": (
        TensorDataset(torch.arange(4.0).expand(120, 4), ROWS.tensors[0], ROWS.tensors[1]),
        1,
    ),
    "texts, which are kept once if they are equal": (
        [("the same text", ONE)] + [(text, ONE) for text in ["the same text"] * 8],
        1,
    ),
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
}


class TestRowsThatAreInTheDataSetSeveralTimes:
    @pytest.mark.parametrize("name", REPEATED)
    def test_their_number(self, name):
        dataset, times = REPEATED[name]
        assert repeated_rows(dataset) == times
        assert repeated_rows(Wrapped(dataset)) == times

    @pytest.mark.parametrize("sampling", [False, True])
    def test_are_refused_if_a_person_has_fewer(self, sampling):
        dataset, times = REPEATED["a rare row, 20 times"]
        with pytest.raises(lo.RefusedTraining, match="a row is at least 20 times in the data set"):
            self.trained(dataset, sampling, examples_per_person=19)
        run = self.trained(dataset, sampling, examples_per_person=times).accountant.run()
        assert run.examples_per_person == 20

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

    def test_in_a_list(self):
        with pytest.raises(
            lo.RefusedTraining, match=r"a row is at least 3 times.*if they are copies"
        ):
            self.trained(PAIRS + [PAIRS[7]] * 2, False)
        assert self.trained(PAIRS, False).accountant.run().steps == 6

    def test_a_vocabulary_that_is_shorter(self):
        """It may be what the rows come from, and the message says how to say that it is not."""
        kept = Own(rows=PAIRS, vocabulary=part(0, 60))
        with pytest.raises(lo.RefusedTraining, match=r"self\.auxiliary = \[\.\.\]"):
            self.trained(kept, False)
        kept.auxiliary = [vars(kept).pop("vocabulary")]
        assert self.trained(kept, False).accountant.run().steps == 6

    def test_indices_that_are_changed_later(self):
        dataset = Subset(ROWS, list(range(60)))
        training = self.trained(dataset, False, examples_per_person=1)
        dataset.indices[1] = 0
        with pytest.raises(lo.RefusedTraining, match="a row is at least 2 times"):
            training.epoch()

    def trained(self, dataset, sampling, **settings):
        lo.register(loss=BINARY, **settings)
        loader = DataLoader(dataset, batch_size=20, shuffle=True, drop_last=True)
        return Training(loader, model=nn.Linear(4, 2), poisson_sampling=sampling).epoch()
