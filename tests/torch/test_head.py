"""A private head says what its estimator says, and its certificate is its own."""

import contextlib
import copy
import json
import math
import subprocess
import sys
import tempfile
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load
from safetensors.torch import save as safetensors_bytes
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

import lastiterate as li
import lastiterate.torch as lt
import lastiterate.torch as package
from lastiterate.errors import InvalidType
from lastiterate.features import Scattering2D
from tests.estimator_docstrings import lacks

COUNT, SIDE = 400, 8
SEEDED = {"epsilon": 2.0, "classes": range(3), "feature_bound": 1.0, "random_state": 0, "epochs": 2}

pytestmark = pytest.mark.filterwarnings(
    "ignore:the training was reproducible", "ignore:.*noise dominates"
)


class Backbone(nn.Module):
    """Small, of the kind that torchvision has: convolutions, BatchNorm, pooling, dropout, fc."""

    def __init__(self, classes=3, bias=True, last=None):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
            nn.Flatten(), nn.Dropout(0.5), *([] if last is None else [last]),
        )  # fmt: skip
        self.fc = nn.Linear(16, classes, bias=bias)

    def forward(self, images):
        return self.fc(self.body(images))


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(COUNT, 1, SIDE, SIDE, generator=generator)
    return TensorDataset(images, images.flatten(1)[:, :3].argmax(1))


def loader_of(data, **settings):
    return DataLoader(data, **{"batch_size": 64} | settings)


class TestWhatTheModelSays:
    @pytest.mark.parametrize("classes, outputs", [(3, 3), (2, 2), (2, 1)])
    def test_is_what_the_estimator_says(self, data, classes, outputs):
        images, labels = data.tensors
        few = TensorDataset(images, labels.clamp(max=classes - 1))
        model = Backbone(outputs)
        keys = list(model.state_dict())
        fitted = lt.fit_head(model, "fc", loader_of(few), **SEEDED | {"classes": range(classes)})
        assert list(model.state_dict()) == [*keys, "fc._extra_state"]
        rows, _ = lt.features(model, "fc", loader_of(few))
        expected = fitted.estimator.predict(rows)
        outputs_of = model.eval()(images)
        found = outputs_of.argmax(1) if outputs > 1 else (outputs_of[:, 0] > 0).long()
        assert (fitted.classes_[found.numpy()] == expected).all()
        assert fitted.privacy_.epsilon(1e-5) <= 2.0

    def test_long_rows_are_scaled_down(self):
        layer = lt.BoundedLinear(3, 2, bound=1.0)
        rows = torch.tensor([[3.0, 0.0, 4.0], [0.1, 0.2, 0.2]])
        plain = nn.Linear(3, 2)
        plain.load_state_dict(layer.state_dict(), strict=False)
        short = rows / rows.norm(dim=1, keepdim=True).clamp(min=1.0)
        torch.testing.assert_close(layer(rows), plain(short))

    def test_dicts_as_of_hugging_face(self, data):
        class Named(Backbone):
            def forward(self, pixel_values, labels=None):
                return super().forward(pixel_values)

        images, labels = data.tensors
        batches = [{"pixel_values": x, "target": y} for x, y in zip(images, labels, strict=True)]
        rows, found = lt.features(Named(), "fc", loader_of(batches), labels="target")
        expected, _ = lt.features(Backbone(), "fc", loader_of(data))
        np.testing.assert_allclose(rows, expected, rtol=1e-5)
        assert (found == labels.numpy()).all()


class TestFeatures:
    def test_are_those_of_eval_mode_and_leave_the_model_as_it_was(self, data):
        model = Backbone().train()
        before = {key: value.clone() for key, value in model.state_dict().items()}
        rows, labels = lt.features(model, "fc", loader_of(data))
        assert model.training
        assert model.body[1].training
        assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
        expected = Backbone().eval().body(data.tensors[0]).detach().numpy()
        np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-6)
        assert (labels == data.tensors[1].numpy()).all()

    def test_in_a_file(self, data, tmp_path):
        model = Backbone()
        mapped, labels = lt.features(
            model, "fc", loader_of(data), memory=100, path=tmp_path / "rows"
        )
        assert isinstance(mapped, np.memmap)
        assert str(mapped.filename) == str(tmp_path / "rows")
        inside, _ = lt.features(model, "fc", loader_of(data))
        assert (mapped == inside).all()
        with pytest.raises(li.InvalidParameter, match="path must be a new file"):
            lt.features(model, "fc", loader_of(data), path=tmp_path / "rows")
        fitted = lt.fit_head(
            model, "fc", loader_of(data), memory=100, path=tmp_path / "more rows", **SEEDED
        )
        assert fitted.privacy_.epsilon(1e-5) <= 2.0
        assert labels.size == COUNT

    @pytest.mark.parametrize("epochs", [2, -1])
    def test_of_a_head_leave_no_file_of_rows(self, data, tmp_path, monkeypatch, epochs):
        """Also where training is refused."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with contextlib.nullcontext() if epochs > 0 else pytest.raises(ValueError, match="epochs"):
            lt.fit_head(
                Backbone(), "fc", loader_of(data), memory=100, **SEEDED | {"epochs": epochs}
            )
        assert not list(tmp_path.iterdir())

    @pytest.mark.parametrize(
        "word, last, bound",
        [("layernorm", nn.LayerNorm(16), 4.0), ("tanh", nn.Tanh(), 4.0), ("normalise", None, 1.0)],
    )
    def test_public_bounds(self, data, word, last, bound):
        model = Backbone(last=last)
        if word == "layernorm":
            nn.init.constant_(last.weight, 2.0)
            nn.init.constant_(last.bias, 0.25)
            bound = 2.0 * 4.0 + 1.0
        fitted = lt.fit_head(model, "fc", loader_of(data), **SEEDED | {"feature_bound": word})
        assert fitted.head.bound == pytest.approx(bound, rel=1e-4)
        rows, _ = lt.features(model, "fc", loader_of(data), normalise=word == "normalise")
        assert np.linalg.norm(rows, axis=1).max() <= bound * (1 + 1e-6)
        found = model.eval()(data.tensors[0]).argmax(1).numpy()
        assert (found == fitted.estimator.predict(rows)).all()

    def test_the_bound_of_a_part_of_what_is_normalised(self, data):
        class Part(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.fc = nn.LayerNorm((SIDE, SIDE)), nn.Linear(SIDE, 3)

            def forward(self, images):
                return self.fc(self.norm(images)[:, 0, 0])

        model = Part()
        stated = SEEDED | {"feature_bound": "layernorm"}
        fitted = lt.fit_head(model, "fc", loader_of(data), **stated)
        spike = torch.zeros(1, 1, SIDE, SIDE)
        spike[0, 0, 0, 0] = 1e3
        assert math.sqrt(SIDE) < model.norm(spike)[0, 0, 0].norm() <= fitted.head.bound

    def test_a_public_bound_that_does_not_follow(self, data):
        with pytest.raises(li.InvalidParameter, match="not the outputs of a tanh"):
            lt.fit_head(Backbone(), "fc", loader_of(data), **SEEDED | {"feature_bound": "tanh"})


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("head")
    model = Backbone()
    fitted = lt.fit_head(model, "fc", loader_of(data), **SEEDED)
    lt.save(fitted, folder)
    return model, fitted, folder


class TestOtherNames:
    def test_of_a_layer_are_replaced_too(self, data):
        class Two(Backbone):
            def __init__(self):
                super().__init__()
                self.classifier = nn.Sequential(nn.Identity(), self.fc)

            def forward(self, images):
                return self.classifier(self.body(images))

        model = Two()
        fitted = lt.fit_head(model, "fc", loader_of(data), **SEEDED)
        assert model.fc is model.classifier[1] is fitted.head
        assert lt.verify(model, "classifier.1", fitted.certificate_)

    def test_of_a_compiled_model(self, data):
        model = torch.compile(Backbone(), backend="eager")
        fitted = lt.fit_head(model, "_orig_mod.fc", loader_of(data), **SEEDED)
        assert model._orig_mod.fc is fitted.head
        assert lt.verify(model, "_orig_mod.fc", fitted.certificate_)

    def test_that_cannot_be_replaced_are_refused(self, data):
        class Listed(Backbone):
            def __init__(self):
                super().__init__()
                self.all = [self.body, self.fc]

            def forward(self, images):
                for one in self.all:
                    images = one(images)
                return images

        model = Listed()
        with pytest.raises(li.InvalidParameter, match="kept elsewhere too"):
            lt.fit_head(model, "fc", loader_of(data), **SEEDED)
        assert len(lt.features(model, "fc", loader_of(data))[0]) == COUNT


class TestFixedFeatures:
    """The bound and the certificate follow from the layer before the head."""

    SETTINGS: ClassVar = {key: SEEDED[key] for key in SEEDED if key != "feature_bound"}

    def model(self, *between):
        layer = lt.FeatureLayer(Scattering2D((SIDE, SIDE), scales=1))
        return nn.Sequential(layer, *between, nn.Linear(144, 3))

    def test_are_those_of_the_transformer(self, data):
        images, _ = data.tensors
        found = self.model()[0](images).numpy()
        expected = Scattering2D((SIDE, SIDE), scales=1).fit_transform(images.numpy()[:, 0])
        np.testing.assert_array_equal(found, expected)

    def test_do_not_change_with_the_type_of_a_batch(self):
        """One image of floats makes floats of a batch of bytes."""
        layer = lt.FeatureLayer(Scattering2D((SIDE, SIDE), scales=1, pixel_max=255))
        images = torch.randint(256, (9, 1, SIDE, SIDE), generator=torch.manual_seed(0)).byte()
        expected = layer(images)
        kinds = (torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)
        for kind in kinds:
            assert torch.equal(layer(images.to(kind)), expected)

    @pytest.mark.parametrize("stated", [{}, {"feature_bound": "features"}])
    def test_give_bound_and_certificate(self, data, stated):
        model = self.model()
        fitted = lt.fit_head(model, "1", loader_of(data), **self.SETTINGS | stated)
        assert fitted.estimator.feature_bound_ == 1.0
        (record,) = json.loads(fitted.certificate_)["feature maps"]
        assert record == Scattering2D((SIDE, SIDE), scales=1).feature_map(SIDE**2).as_record()
        assert lt.verify(model, "1", fitted.certificate_).epsilon(1e-5) <= 2.0

    def test_are_of_no_use_to_a_head_elsewhere(self, data):
        doubled = nn.Linear(144, 144)
        with pytest.raises(ValueError, match="not the outputs of a features"):
            lt.fit_head(self.model(doubled), "2", loader_of(data), **self.SETTINGS)
        with pytest.raises(ValueError, match="feature_bound must be given"):
            lt.fit_head(Backbone(), "fc", loader_of(data), **self.SETTINGS)

    def test_must_reach_the_head_as_they_are(self, data):
        class Times(nn.Module):
            def forward(self, rows):
                return rows.mul_(10.0)

        for between in (Times(), nn.ReLU(inplace=True)):
            with pytest.raises(ValueError, match="not the outputs of a features"):
                lt.fit_head(self.model(between), "2", loader_of(data), **self.SETTINGS)

    def test_must_be_those_of_one_layer(self, data):
        class Either(nn.Module):
            def __init__(self):
                super().__init__()
                maps = [Scattering2D((SIDE, SIDE), scales=1, variance_floor=f) for f in (1e-5, 1.0)]
                self.layers = nn.ModuleList([lt.FeatureLayer(one) for one in maps])
                self.head = nn.Linear(144, 3)
                self.last = 0

            def forward(self, images):
                self.last += len(images) > 1
                return self.head(self.layers[self.last % 2](images))

        with pytest.raises(ValueError, match="not the outputs of a features"):
            lt.fit_head(Either(), "head", loader_of(data), **self.SETTINGS)

    def test_must_be_fixed(self):
        with pytest.raises(InvalidType, match=r"a transformer of lastiterate\.features"):
            lt.FeatureLayer(StandardScaler())


class Other(lt.BoundedLinear):
    pass


KINDS_CHANGED = {
    "before": lambda one: one.register_forward_pre_hook(lambda _, given: (given[0] * 2.0,)),
    "after": lambda one: one.register_forward_hook(lambda _, given, found: found * 2.0),
    "forward": lambda one: setattr(one, "forward", lambda rows: rows),
    "kind": lambda one: setattr(one, "__class__", Other),
}
VALUES_CHANGED = {
    "weight": lambda one: one.weight.data[0, 0].add_(1e-3),
    "bias": lambda one: one.bias.data[0].add_(1e-3),
    "bound": lambda one: setattr(one, "bound", 100.0 * one.bound),
    "normalise": lambda one: setattr(one, "normalise", True),
    "centre": lambda one: (
        setattr(one, "center", torch.ones(16)),
        setattr(one, "center_bound", 1.0),
    ),
}


class TestCertificates:
    def test_verify(self, saved):
        model, fitted, folder = saved
        report = lt.verify(model, "fc", folder / "certificate.json")
        assert report.epsilon(1e-5) == pytest.approx(fitted.privacy_.epsilon(1e-5), rel=1e-9)
        plain = nn.Linear(16, 3)
        plain.load_state_dict(model.fc.state_dict(), strict=False)
        with pytest.raises(ValueError, match="does not bound rows as in training"):
            lt.verify(nn.Sequential(plain), "0", fitted.certificate_)

    @pytest.mark.parametrize("change", [*KINDS_CHANGED, *VALUES_CHANGED])
    def test_of_a_layer_that_was_changed(self, saved, change):
        model, fitted, _ = saved
        other = nn.Sequential(copy.deepcopy(model.fc))
        assert lt.verify(other, "0", fitted.certificate_)
        if change in KINDS_CHANGED:
            KINDS_CHANGED[change](other[0])
            match = "BoundedLinear without hooks"
        else:
            VALUES_CHANGED[change](other[0])
            match = "layer of other weights"
        with pytest.raises(ValueError, match=match):
            lt.verify(other, "0", fitted.certificate_)

    def test_that_states_more_privacy(self, saved):
        model, fitted, _ = saved
        record = json.loads(fitted.certificate_)
        record["guarantee"]["epsilon"] = 0.1
        with pytest.raises(ValueError, match="does not hold"):
            lt.verify(model, "fc", json.dumps(record))

    def test_of_other_features(self, data):
        """The model's layer must be the one that the certificate names."""

        def model_of(**settings):
            layer = lt.FeatureLayer(Scattering2D((SIDE, SIDE), scales=1, **settings))
            return nn.Sequential(layer, nn.Linear(144, 3))

        model = model_of()
        settings = {key: SEEDED[key] for key in SEEDED if key != "feature_bound"}
        fitted = lt.fit_head(model, "1", loader_of(data), **settings)
        assert lt.verify(model, "1", fitted.certificate_)
        for other in (model_of(variance_floor=1.0), nn.Sequential(nn.Identity(), model[1])):
            other[1] = model[1]
            with pytest.raises(ValueError, match="no FeatureLayer of the model computes"):
                lt.verify(other, "1", fitted.certificate_)

    def test_load(self, saved, data):
        model, fitted, folder = saved
        other = Backbone()
        assert lt.load(other, folder).epsilon(1e-5) <= 2.0
        images = data.tensors[0]
        assert torch.equal(other.eval()(images), model.eval()(images))
        damaged = folder.parent / "damaged"
        lt.save(fitted, damaged)
        text = (damaged / "certificate.json").read_text().replace(fitted.name, "other")
        (damaged / "certificate.json").write_text(text[: len(text) // 2])
        with pytest.raises(ValueError, match="not JSON"):
            lt.load(Backbone(), damaged)

    def test_into_a_layer_of_other_inputs(self, saved):
        *_, folder = saved
        other = nn.Sequential(nn.Linear(9, 3))
        with pytest.raises(li.InvalidParameter, match=r"with 16 inputs.*found 9 inputs"):
            lt.load(other, folder, name="0")
        assert type(other[0]) is nn.Linear

    @pytest.mark.parametrize("cast", [torch.float16, torch.bfloat16, "trained"])
    def test_of_a_head_that_changed_after_training(self, data, tmp_path, cast):
        model = Backbone()
        fitted = lt.fit_head(model, "fc", loader_of(data), **SEEDED)
        if cast == "trained":
            fitted.head.weight.data[0, 0] += 1e-3
        else:
            model.to(cast)
        with pytest.raises(li.InvalidParameter, match="before the model is cast or trained"):
            lt.save(fitted, tmp_path / "head")
        assert not (tmp_path / "head").exists()

    def test_of_another_kind_of_model(self, saved, data):
        model, fitted, _ = saved
        with pytest.raises(ValueError, match=r"not that of a head|belongs to"):
            lt.verify(model, "fc", fitted.estimator.certificate_)

    def test_with_torch_alone(self, saved):
        """Neither scikit-learn nor cryptography is needed to verify."""
        *_, folder = saved
        code = (
            "import sys, warnings; warnings.simplefilter('ignore')\n"
            "sys.modules.update(sklearn=None, cryptography=None, opacus=None)\n"
            "import torch, lastiterate.torch as lt\n"
            "model = torch.nn.Sequential(torch.nn.Linear(16, 3))\n"
            f"print(lt.load(model, {str(folder)!r}, name='0').epsilon(1e-5) <= 2.0)\n"
        )
        command = [sys.executable, "-c", code]
        assert (
            subprocess.run(command, check=True, capture_output=True, text=True).stdout == "True\n"
        )


class TestElsewhere:
    def test_a_head_is_refused_with_what_to_save_instead(self, saved, data, tmp_path):
        import lastiterate.huggingface as hub

        model, fitted, _ = saved
        writers = [li.save, hub.save]
        with contextlib.suppress(ImportError):
            import lastiterate.onnx

            writers.append(lastiterate.onnx.export)
        for number, write in enumerate(writers):
            with pytest.raises(InvalidType, match=r"a FittedHead, whose \.estimator is one.*onnx"):
                write(fitted, tmp_path / f"head {number}")
            write(fitted.estimator, tmp_path / f"estimator {number}")
        rows, _ = lt.features(model, "fc", loader_of(data))
        found = li.load(tmp_path / "estimator 0").predict(rows)
        assert (found == fitted.estimator.predict(rows)).all()

    def test_torch_exports_the_whole_model(self, saved, data):
        exported = torch.export.export(saved[0].eval(), (data.tensors[0][:8],))
        expected = saved[0](data.tensors[0][:8])
        torch.testing.assert_close(exported.module()(data.tensors[0][:8]), expected)


class TestState:
    """The state of a head is of no use to a layer that would say something else."""

    def test_goes_into_such_a_layer_only(self, data):
        images, _ = data.tensors
        model = Backbone()
        settings = SEEDED | {"feature_bound": "normalise", "center": True}
        fitted = lt.fit_head(model, "fc", loader_of(data), **settings)
        assert fitted.head.center is not None
        with pytest.raises(RuntimeError, match=r"Unexpected key.*fc\._extra_state"):
            Backbone().load_state_dict(model.state_dict())
        other = Backbone()
        other.fc = lt.BoundedLinear(16, 3)
        other.load_state_dict(load(safetensors_bytes(model.state_dict())))
        assert torch.equal(other.eval()(images), model.eval()(images))
        assert lt.verify(other, "fc", fitted.certificate_)
        again = lt.BoundedLinear(16, 3, center=torch.ones(16), center_bound=1.0)
        again.load_state_dict(lt.BoundedLinear(16, 3, bound=2.0).state_dict())
        assert (again.center, again.center_bound, again.bound) == (None, None, 2.0)

    def test_must_be_one(self):
        for wrong in ([1.0], [0.0, 0.0, math.nan], [1.0, 0.0, 1.0, 2.0], [math.nan] * 3):
            with pytest.raises(li.InvalidParameter):
                lt.BoundedLinear(3, 2).set_extra_state(torch.tensor(wrong))


class TestRefused:
    def refused(self, why, data, model=None, *, settings=None, **changes):
        with pytest.raises(ValueError, match=why):
            lt.fit_head(
                Backbone() if model is None else model,
                changes.pop("name", "fc"),
                loader_of(data, **settings or {}),
                **SEEDED | changes,
            )

    def test_models(self, data):
        self.refused("the name of a torch.nn.Linear", data, name="body")
        self.refused("as many as the outputs of the layer, 3", data, classes=range(4))

        class Stubborn(nn.Dropout):
            def train(self, mode=True):
                return super().train(True)

        self.refused("training mode", data, Backbone(last=Stubborn()))
        batchwise = nn.BatchNorm1d(16, track_running_stats=False)
        self.refused("takes those of the batch", data, Backbone(last=batchwise))

        class Chance(nn.Module):
            def forward(self, rows):
                return nn.functional.dropout(rows, training=True)

        self.refused("depend on that example alone", data, Backbone(last=Chance()))

        class Crops(nn.Module):
            def forward(self, rows):
                return rows.repeat(2, 1)

        self.refused("one row for each example", data, Backbone(last=Crops()))

    def test_heads_that_do_more(self, data):
        def hooked(model):
            model.fc.register_forward_pre_hook(lambda _, given: (given[0] * 2.0,))

        def scaled(model):
            class Scaled(nn.Linear):
                def forward(self, rows):
                    return super().forward(2.0 * rows)

            model.fc.__class__ = Scaled

        for change in (hooked, scaled):
            change(model := Backbone())
            self.refused("without hooks and with no forward of its own", data, model)

    def test_loaders(self, data):
        weighted = WeightedRandomSampler([1.0] * COUNT, COUNT)
        self.refused("weighted or other sampler", data, settings={"sampler": weighted})
        self.refused("without drop_last", data, settings={"drop_last": True})
        images, labels = data.tensors
        smoothed = TensorDataset(images, nn.functional.one_hot(labels).float())
        self.refused("smoothed or mixed labels", smoothed)

    def test_settings(self, data):
        self.refused("no smoothed labels", data, label_smoothing=0.1)
        self.refused("class weights", data, weight=[1.0, 2.0, 1.0])
        self.refused("class_weight must be", data, class_weight="balanced")
        self.refused("feature_bound must be", data, feature_bound=float("nan"))
        self.refused("feature_bound must be one of", data, feature_bound="batchnorm")
        model = Backbone(bias=False)
        self.refused("the layer has no bias", data, model, fit_intercept=True)


def test_a_number_of_classes_stands_for_their_labels(data):
    settings = {"batches": "cyclic", "epochs": 1, "feature_bound": 1.0, "random_state": 0}
    fitted = lt.fit_head(Backbone(), "fc", loader_of(data), classes=3, **settings)
    assert fitted.classes_.tolist() == [0, 1, 2]
    for wrong in (1, 2.5, None, True):
        with pytest.raises(li.InvalidParameter, match="classes must be"):
            lt.fit_head(Backbone(), "fc", loader_of(data), classes=wrong, **settings)


@pytest.mark.parametrize("name", package.__all__)
def test_has_all_sections(name):
    assert not lacks(getattr(package, name))
