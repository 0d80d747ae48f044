"""A row of features is a function of its example alone, and every example gives one row."""

import copy
import itertools
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    TensorDataset,
)

import lastiterate.torch as lt
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.torch.repeated_rows import repeated_rows

COUNT, WIDTH, HIDDEN = 50, 4, 6
ALONE = "depend on that example alone"


def vectors(count=COUNT):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(count, WIDTH, generator=generator)
    return TensorDataset(rows, (rows[:, 0] > 0).long())


class Texts(Dataset):
    """Tokens from 1, of all lengths, or all of one length but for the text `longer`."""

    def __init__(self, longer=None):
        generator = torch.Generator().manual_seed(0)
        lengths = (
            range(3, 3 + COUNT)
            if longer is None
            else [20 if k == longer else 5 for k in range(COUNT)]
        )
        self.texts = [torch.randint(1, 30, (one,), generator=generator) for one in lengths]

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return self.texts[index], index % 2


class Pairs(Dataset):
    """Rows and labels of any types."""

    def __init__(self, rows, labels):
        self.rows, self.labels = rows, labels

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index], self.labels[index]


def padded(pairs):
    texts, labels = zip(*pairs, strict=True)
    return nn.utils.rnn.pad_sequence(texts, batch_first=True), torch.tensor(labels)


class Before(nn.Module):
    """A model whose features are those of `body`."""

    def __init__(self, body, width=HIDDEN):
        super().__init__()
        self.body, self.fc = body, nn.Linear(width, 2)

    def forward(self, rows):
        return self.fc(self.body(rows))


class Of(nn.Module):
    """A function of rows as a layer."""

    def __init__(self, function, *layers):
        super().__init__()
        self.function, self.layers = function, nn.ModuleList(layers)

    def forward(self, rows):
        return self.function(rows, *self.layers)


def causal(rows):
    """Attention of every row to those before it."""
    mask = torch.ones(len(rows), len(rows)).tril().bool()
    return nn.functional.scaled_dot_product_attention(rows, rows, rows, attn_mask=mask)


def capacity(rows):
    """As in a mixture of experts, of which each takes so many rows and no more."""
    return torch.where((torch.arange(len(rows)) < 7).unsqueeze(1), rows, 0 * rows)


def swapped(rows):
    """Neighbours exchanged, but for the first and the last."""
    order = list(range(len(rows)))
    order[1:-1:2], order[2:-1:2] = order[2:-1:2], order[1 : len(order[2:-1:2]) * 2 : 2]
    return rows[order]


MIXING = {
    "LSTM over (batch, features)": (Of(lambda x, r: r(x)[0], nn.LSTM(WIDTH, HIDDEN)), HIDDEN),
    "LSTM, batch_first forgotten": (
        Of(lambda x, r: r(x.unsqueeze(1))[0][:, -1], nn.LSTM(WIDTH, HIDDEN)),
        HIDDEN,
    ),
    "causal attention over the batch": (Of(causal), WIDTH),
    "sum of all so far": (Of(lambda x: x.cumsum(0)), WIDTH),
    "mean of the batch": (Of(lambda x: x - x.mean(0)), WIDTH),
    "the example before": (Of(lambda x: x.roll(1, 0)), WIDTH),
    "limited capacity": (Of(capacity), WIDTH),
    "a little of the mean": (Of(lambda x: x + 3e-4 * x.mean(0)), WIDTH),
    "functional dropout": (Of(lambda x: nn.functional.dropout(x, training=True)), WIDTH),
}


def refused(match, model, loader, **settings):
    with pytest.raises(InvalidParameter, match=match):
        lt.features(model, "fc", loader, **settings)


class TestMixingIsRefused:
    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("kind", MIXING)
    def test_over_the_batch(self, kind, shuffle):
        torch.manual_seed(0)
        model = Before(*MIXING[kind])
        loader = DataLoader(vectors(), batch_size=20, shuffle=shuffle)
        refused(ALONE, model, loader)
        with pytest.raises(InvalidParameter, match=ALONE):
            lt.fit_head(model, "fc", loader, classes=2, feature_bound=1.0)

    @pytest.mark.parametrize("kind", sorted(MIXING.keys() - {"functional dropout"}))
    def test_and_there_is_none_one_by_one(self, kind):
        """One example changed: no other row does."""
        torch.manual_seed(0)
        model = Before(*MIXING[kind])
        rows, labels = vectors().tensors
        changed = rows.clone()
        changed[7] = 5.0
        one, other = (
            lt.features(model, "fc", DataLoader(TensorDataset(x, labels), 20), one_by_one=True)[0]
            for x in (rows, changed)
        )
        assert np.flatnonzero((one != other).any(1)).tolist() in ([7], [])
        with pytest.raises(InvalidParameter, match=ALONE):
            lt.features(
                Before(*MIXING["functional dropout"]),
                "fc",
                DataLoader(vectors(), 20),
                one_by_one=True,
            )

    def test_of_neighbours(self):
        """Neither the first nor the last of a batch shows it."""
        loader = DataLoader(vectors(), batch_size=10)
        refused(ALONE, Before(Of(swapped), WIDTH), loader)

    @pytest.mark.parametrize("longer", [None, 0, 13, 31, 49])
    def test_by_padding(self, longer):
        """Also where one text of one batch alone is longer."""
        model = Before(Of(lambda x, e: e(x).mean(1), nn.Embedding(30, HIDDEN)))
        loader = DataLoader(Texts(longer), batch_size=20, collate_fn=padded)
        refused("padding without a mask", model, loader)

    def test_by_reading_several_together(self):
        class Centred(TensorDataset):
            def __getitems__(self, indices):
                rows, labels = self.tensors[0][indices], self.tensors[1][indices]
                return list(zip(rows - rows.mean(0), labels, strict=True))

        loader = DataLoader(Centred(*vectors().tensors), batch_size=20)
        refused(ALONE, Before(nn.Identity(), WIDTH), loader)

    def test_of_labels(self):
        def majority(pairs):
            rows, labels = map(torch.stack, zip(*pairs, strict=True))
            return rows, labels.mode().values.expand(len(labels))

        loader = DataLoader(vectors(), batch_size=20, collate_fn=majority)
        refused(ALONE, Before(nn.Identity(), WIDTH), loader)

    @pytest.mark.parametrize("one_by_one", [False, True])
    def test_with_the_first_batch(self, one_by_one):
        """A layer that takes its scale from what it sees first, and keeps it."""

        class FromData(nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("scale", torch.zeros(()))

            def forward(self, rows):
                if self.scale == 0:
                    self.scale.copy_(rows.std())
                return rows / self.scale

        loader = DataLoader(vectors(), batch_size=20)
        refused(
            r"learns nothing.*`if self\.training`.*body\.scale",
            Before(FromData(), WIDTH),
            loader,
            one_by_one=one_by_one,
        )

    @pytest.mark.parametrize("kind", ["mean of the first", "running mean", "cache", "in a method"])
    @pytest.mark.parametrize("one_by_one", [False, True])
    def test_what_a_model_keeps_reaches_no_other_batch(self, kind, one_by_one):
        """A model is refused, or one example changed changes no other row."""

        class Keeps(nn.Module):
            def __init__(self):
                super().__init__()
                self.kept = None

            def forward(self, rows):
                if kind == "cache":
                    self.kept = self.kept or {}
                    return torch.stack(
                        [self.kept.setdefault(tuple(row[:2].sign().tolist()), row) for row in rows]
                    )
                mean = rows.mean(0)
                if self.kept is None:
                    self.kept = mean
                elif kind == "running mean":
                    self.kept = self.kept + 1e-6 * (mean - self.kept)
                return rows - self.kept

        def given(rows):
            model = Before(Keeps(), WIDTH)
            if kind == "in a method":
                inner = Keeps()
                model.body = Of(inner.forward)
            loader = DataLoader(TensorDataset(rows, labels), 20)
            return lt.features(model, "fc", loader, one_by_one=one_by_one)[0]

        rows, labels = vectors().tensors
        changed = rows.clone()
        changed[0] = 5.0
        try:
            one, other = given(rows), given(changed)
        except InvalidParameter:
            return
        assert np.flatnonzero((one != other).any(1)).tolist() in ([0], [])

    def test_the_model_itself_sees_no_example(self):
        class Counts(nn.Module):
            count = 0

            def forward(self, rows):
                self.count += 1
                assert self.count <= 2  # the check of memory runs a copy twice
                return rows

        model = Before(Counts(), WIDTH)
        lt.features(model, "fc", DataLoader(vectors(), 5))
        assert model.body.count == 0

    @pytest.mark.parametrize("one_by_one", [False, True])
    @pytest.mark.parametrize("odd", [7, 45])
    @pytest.mark.parametrize(
        "label, other",
        [
            (torch.tensor(2049), torch.tensor(1.0, dtype=torch.float16)),
            (torch.tensor(257), torch.tensor(1.0, dtype=torch.bfloat16)),
            (torch.tensor(2**24 + 1), torch.tensor(1.0)),
            (2**24 + 1, 1.0),
            (2**53 + 1, 1.0),
            (torch.tensor(2**53 + 1), torch.tensor(1.0, dtype=torch.float64)),
            ("0", 1),
        ],
        ids=str,
    )
    def test_by_the_type_of_one_label(self, label, other, odd, one_by_one):
        labels = [other if k == odd else label for k in range(COUNT)]
        data = Pairs(vectors().tensors[0], labels)
        with pytest.raises((InvalidParameter, InvalidType)):
            lt.features(
                Before(nn.Identity(), WIDTH), "fc", DataLoader(data, 20), one_by_one=one_by_one
            )

    @pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
    @pytest.mark.parametrize("odd", [0, 7, 39])
    def test_by_the_type_of_one_input(self, kind, odd):
        rows = [(100 + 100 * row).to(torch.uint8) for row in vectors().tensors[0]]
        rows[odd] = rows[odd].to(kind)
        model = Before(Of(lambda x: (x / 255).float()), WIDTH)
        loader = DataLoader(Pairs(rows, [0] * COUNT), 20)
        refused("all of one type", model, loader)
        assert len(lt.features(model, "fc", loader, one_by_one=True)[0]) == COUNT

    @pytest.mark.parametrize("one_by_one", [False, True])
    def test_by_what_collates_and_remembers(self, one_by_one):
        """Texts as long as the longest so far: one text changed changes no other row."""

        class Longest:
            so_far = 0

            def __call__(self, pairs):
                self.so_far = max(self.so_far, *[len(text) for text, _ in pairs])
                rows, labels = padded(pairs)
                return nn.functional.pad(rows, (0, self.so_far - rows.shape[1])), labels

        def given(longer):
            texts = Texts(COUNT)
            texts.texts[longer] = texts.texts[longer].repeat(4)
            model = Before(Of(lambda x, e: e(x).mean(1), nn.Embedding(30, HIDDEN)))
            model.load_state_dict(state)
            loader = DataLoader(texts, 1, collate_fn=Longest())
            return lt.features(model, "fc", loader, one_by_one=one_by_one)[0]

        torch.manual_seed(0)
        state = Before(Of(None, nn.Embedding(30, HIDDEN))).state_dict()
        if one_by_one:
            assert np.flatnonzero((given(3) != given(49)).any(1)).tolist() == [3, 49]
        else:
            with pytest.raises(InvalidParameter, match=ALONE):
                given(3)

    @pytest.mark.parametrize("one_by_one", [False, True])
    @pytest.mark.parametrize("how", ["data", "detach", "in place"])
    def test_with_parameters_that_a_model_writes(self, how, one_by_one):
        class Writes(nn.Module):
            def __init__(self):
                super().__init__()
                self.shift = nn.Parameter(torch.zeros(WIDTH))

            def forward(self, rows):
                mean = rows.mean(0)
                if how == "data":
                    self.shift.data = self.shift.data + mean
                elif how == "detach":
                    self.shift.detach().add_(mean)
                else:
                    self.shift.add_(mean)
                return rows + self.shift

        model = Before(Writes(), WIDTH)
        refused(
            r"learns nothing.*body\.shift", model, DataLoader(vectors(), 20), one_by_one=one_by_one
        )
        assert not model.body.shift.any()

    def test_of_a_twentieth_of_all(self):
        """Few examples of one batch: more than three of it run again."""
        data = vectors(400)

        def some(rows):
            chosen = rows[:, 1] > rows[:, 1].quantile(0.95)
            return torch.where(chosen.unsqueeze(1), rows + rows.mean(0), rows)

        refused(ALONE, Before(Of(some), WIDTH), DataLoader(data, 400))

    def test_examples_that_a_model_writes_to(self):
        """They are copied: nothing that is written reaches the data set."""
        data = vectors()
        before = data.tensors[0].clone()
        loader = DataLoader([(row, 0) for row in data.tensors[0]], collate_fn=lambda one: one[0])
        model = Before(Of(lambda x: x.mul_(2.0).unsqueeze(0)), WIDTH)
        with pytest.raises((InvalidParameter, InvalidType)):  # labels are no batch
            lt.features(model, "fc", loader)
        assert torch.equal(data.tensors[0], before)

    def test_a_model_that_cannot_be_copied_is_refused(self):
        model = Before(nn.Identity(), WIDTH)
        model.lock = threading.Lock()
        refused(r"copy\.deepcopy", model, DataLoader(vectors(), 5))


class Masked(nn.Module):
    """A transformer that does not see padding."""

    def __init__(self, layers=2):
        super().__init__()
        self.embed, self.fc = nn.Embedding(30, 16), nn.Linear(16, 2)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, tokens):
        padding = tokens == 0
        found = self.encoder(self.embed(tokens), src_key_padding_mask=padding)
        seen = (~padding).unsqueeze(-1)
        return self.fc((found * seen).sum(1) / seen.sum(1))


class TestOthersAreAccepted:
    @pytest.mark.parametrize("batch_size", [1, 7, COUNT])
    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize(
        "body",
        [
            nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.LayerNorm(HIDDEN), nn.Dropout(0.5)),
            nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.Tanh()),
            nn.Sequential(
                nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, HIDDEN, 2), nn.BatchNorm2d(HIDDEN),
                nn.ReLU(), nn.Flatten(),
            ),
            Of(
                lambda x, r: r(x.unsqueeze(1))[0][:, -1],
                nn.LSTM(WIDTH, HIDDEN, 2, batch_first=True),
            ),
            Of(lambda x, f: f(torch.zeros_like(x)).relu() * 0, nn.Linear(WIDTH, HIDDEN)),
        ],
        ids=["LayerNorm", "BatchNorm", "convolution", "LSTM", "zeros"],
    )  # fmt: skip
    def test_layers(self, body, shuffle, batch_size):
        torch.manual_seed(0)
        loader = DataLoader(vectors(), batch_size=batch_size, shuffle=shuffle)
        rows, labels = lt.features(Before(body), "fc", loader)
        alone, also = lt.features(Before(body), "fc", loader, one_by_one=True)
        assert len(rows) == len(labels) == len(alone) == len(also) == COUNT
        if not shuffle:
            np.testing.assert_allclose(rows, alone, rtol=1e-4, atol=1e-6)
            assert (labels == also).all()

    def test_copies_share_parameters_and_remember_nothing_else(self):
        """Caches that do not depend on rows, and weights that a hook computes."""

        class Cached(nn.Module):
            def forward(self, rows):
                if not hasattr(self, "angles"):
                    self.register_buffer("angles", torch.arange(WIDTH) * 0.1, persistent=False)
                return rows * self.angles.cos()

        linear = nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH))
        older = nn.Linear(WIDTH, WIDTH)
        older.doubled = older.weight * 2  # has a gradient, so that torch does not copy it
        body = nn.Sequential(Cached(), linear, older)
        rows, _ = lt.features(Before(body, WIDTH), "fc", DataLoader(vectors(), 20))
        expected = body(vectors().tensors[0]).detach().numpy()
        np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-6)

    def test_copies_of_layers_share_what_layers_share(self):
        """Also a dict, a layer in two places, a parent, and hooks."""

        class Notes(nn.Module):
            def __init__(self, notes):
                super().__init__()
                self.notes, self.parent = notes, []

            def forward(self, rows):
                assert self.parent[0].last is self
                self.notes["rows"] = rows
                return torch.zeros_like(rows)

        class Body(nn.Module):
            def __init__(self):
                super().__init__()
                self.notes = {}
                self.first = self.last = Notes(self.notes)
                self.first.parent.append(self)

            def forward(self, rows):
                return self.last(rows) + self.notes["rows"]

        body = Body()
        body.register_forward_hook(lambda layer, given, found: found + 1.0)
        rows, _ = lt.features(Before(body, WIDTH), "fc", DataLoader(vectors(), 20))
        np.testing.assert_array_equal(rows, vectors().tensors[0].numpy() + np.float32(1.0))
        assert not body.notes

    def test_padding_with_a_mask(self):
        loader = DataLoader(Texts(), batch_size=20, collate_fn=padded)
        rows, _ = lt.features(Masked(), "fc", loader)
        assert len(rows) == COUNT

    @pytest.mark.parametrize(
        "labels",
        [
            [2**53 + 1] * COUNT,
            [0.5] * COUNT,
            ["a", "long"] * (COUNT // 2),
            [np.int64(3)] * COUNT,
            [True] * COUNT,
            [torch.tensor(1.5)] * COUNT,
        ],
        ids=lambda labels: type(labels[0]).__name__,
    )
    def test_labels_of_one_type(self, labels):
        loader = DataLoader(Pairs(vectors().tensors[0], labels), 20)
        for one_by_one in (False, True):
            model = Before(nn.Identity(), WIDTH)
            assert lt.features(model, "fc", loader, one_by_one=one_by_one)[1].tolist() == labels

    def test_numbers_that_are_no_numbers(self):
        """They are the business of what comes next, and no sign of mixing."""
        rows, labels = (one.clone() for one in vectors().tensors)
        rows[0, 0], rows[19, 1], rows[30] = float("nan"), float("inf"), float("-inf")
        loader = DataLoader(TensorDataset(rows, labels), batch_size=20)
        found, _ = lt.features(Before(nn.Identity(), WIDTH), "fc", loader)
        np.testing.assert_array_equal(found, rows.numpy())

    def test_several_processes(self):
        loader = DataLoader(vectors(), batch_size=20, shuffle=True, num_workers=1)
        sampler = loader.batch_sampler.sampler
        for one_by_one in (False, True):
            rows, _ = lt.features(Before(nn.Identity(), WIDTH), "fc", loader, one_by_one=one_by_one)
            expected = vectors().tensors[0].numpy()
            assert sorted(map(tuple, rows)) == sorted(map(tuple, expected))
        assert loader.batch_sampler.sampler is sampler

    def test_random_augmentation_one_by_one_only(self):
        class Augmented(TensorDataset):
            def __getitem__(self, index):
                row, label = super().__getitem__(index)
                return row + torch.randn(WIDTH), label

        loader = DataLoader(Augmented(*vectors().tensors), batch_size=20)
        model = Before(nn.Identity(), WIDTH)
        refused(r"one_by_one=True.*read again", model, loader)
        assert len(lt.features(model, "fc", loader, one_by_one=True)[0]) == COUNT


class TestEveryExampleOnce:
    def refused(self, why, loader):
        refused(why, Before(nn.Identity(), WIDTH), loader)

    def test_repeated_rows(self):
        data = vectors()
        for times, repeated in (
            (20, Subset(data, [3] * 20 + list(range(4, 50)))),
            (5, ConcatDataset([data] * 5)),
            (2, ConcatDataset([data, TensorDataset(*data.tensors)])),
            (2, ConcatDataset([Subset(data, range(30)), Subset(data, torch.arange(29, 40))])),
            (6, Subset(Subset(data, [1, 1, -49]), [0, 1, 2, 0, 1, 2])),
            (50, [data[0]] * 50),
            (50, TensorDataset(data.tensors[0][:1].expand(50, -1), data.tensors[1])),
        ):
            assert repeated_rows(repeated) == times
            self.refused(f"found one {times} times", DataLoader(repeated, batch_size=10))

    def test_different_rows(self):
        data = vectors()
        halves = torch.utils.data.random_split(data, [25, 25])
        for fine in (
            data,
            ConcatDataset(halves),
            ConcatDataset([data, vectors()]),
            Subset(data, []),
            StackDataset(data, data),
            [1, 1, 1],
        ):
            assert repeated_rows(fine) == min(len(fine), 1)

    def test_samplers(self):
        data = vectors()

        class Repeats:
            def __iter__(self):
                return itertools.repeat(list(range(10)), 5)

            def __len__(self):
                return 5

        self.refused("batch_sampler must be", DataLoader(data, batch_sampler=Repeats()))
        again = RandomSampler(range(10), num_samples=COUNT)
        self.refused("10 out of 50", DataLoader(data, batch_size=10, sampler=again))
        again.replacement = True
        self.refused("several times", DataLoader(data, batch_size=10, sampler=again))
        self.refused("batch_sampler must be", DataLoader(data, batch_size=None))

        class Own(BatchSampler):
            pass

        by_length = Own(SequentialSampler(data), 10, drop_last=False)
        self.refused("batch_sampler must be", DataLoader(data, batch_sampler=by_length))

    def test_a_loader_of_other_batches(self):
        class Twice(DataLoader):
            def __iter__(self):
                for batch in super().__iter__():
                    yield copy.deepcopy(batch)
                    yield batch

        half = Subset(vectors(), range(25))
        self.refused("loader must be one with one row", Twice(half, batch_size=25))

        class Reordered(DataLoader):
            def __iter__(self):
                return reversed(list(super().__iter__()))

        self.refused(ALONE, Reordered(vectors(), batch_size=5))
        model, loader = Before(nn.Identity(), WIDTH), Reordered(vectors(), batch_size=5)
        refused("leaves batches as they are", model, loader, one_by_one=True)


@pytest.mark.parametrize("kept", ["cifar10", {"train": [1], "test": [2]}, ([1.0], [2])])
def test_not_everything_that_is_called_dataset_is_one(kept):
    class Named(torch.utils.data.Dataset):
        dataset = None

        def __len__(self):
            return 640

        def __getitem__(self, index):
            return torch.tensor([float(index)]), 0

    named = Named()
    named.dataset = kept
    assert repeated_rows(named) == 1


def test_a_file_that_comes_in_between_is_kept(tmp_path, monkeypatch):
    """It is neither truncated nor deleted, and ours is for its owner alone."""
    path = tmp_path / "rows"
    usual = lt.features.__globals__["extract_features"].__globals__
    monkeypatch.setitem(usual, "refuse_replacing", lambda *_: path.write_bytes(b"mine"))
    with pytest.raises(FileExistsError):
        lt.features(Before(nn.Identity(), WIDTH), "fc", DataLoader(vectors(), 20), path=path)
    assert path.read_bytes() == b"mine"
    monkeypatch.undo()
    path.unlink()
    lt.features(Before(nn.Identity(), WIDTH), "fc", DataLoader(vectors(), 20), path=path)
    assert path.stat().st_mode & 0o077 == 0
