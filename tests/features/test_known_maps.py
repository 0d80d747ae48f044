"""Maps as data: every one has a record, and no other record passes."""

import json
import math

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import lastiterate as li
import lastiterate.features as package
from lastiterate.certificate.issue import with_digest
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.features import Scattering2D
from lastiterate.features.known_maps import MAPS, map_from_text, map_in_words, map_of
from lastiterate.features.maps import FeatureMap
from lastiterate.features.scattering_map import ScatteringMap
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.saved_model.model_file import digest

EXAMPLES = {getattr(package, name)().feature_map(4) for name in package.__all__}


def maps_below(base):
    """The classes of maps, each of which names its kind; those between them and the base do not."""
    for one in base.__subclasses__():
        yield from [one] if hasattr(one, "kind") else maps_below(one)


def test_every_map_is_known():
    assert {type(one) for one in EXAMPLES} == set(MAPS.values()) == set(maps_below(FeatureMap))


@pytest.mark.parametrize("mapped", EXAMPLES, ids=lambda one: one.kind)
class TestRecords:
    def test_give_the_map_again(self, mapped):
        record = json.loads(json.dumps(mapped.as_record()))
        assert map_of(record) == mapped
        assert record["norm bound"] == mapped.norm_bound == 1.0
        assert mapped.kind in map_in_words(record)

    def test_have_no_other_form(self, mapped):
        record = mapped.as_record()
        wrong = [{**record, "kind": "magic"}, {**record, "norm bound": 0.5}, {**record, "more": 1}]
        for name in record:
            wrong.append({key: value for key, value in record.items() if key != name})
            wrong.append({**record, name: math.nan})
            wrong.append({**record, name: None})
            wrong.append({**record, name: "1"})
            if type(record[name]) is int:
                wrong.append({**record, name: float(record[name])})
        wrong.append({**record, "norm bound": True})
        for one in wrong:
            with pytest.raises(InvalidParameter, match="features"):
                map_of(one)

    def test_must_be_records(self, mapped):
        for one in (None, [], "scattering", [mapped.as_record()]):
            with pytest.raises(InvalidParameter, match="features"):
                map_of(one)


def test_a_scattering_map_without_the_scale_of_pixels_is_refused(tmp_path):
    """Earlier versions took it from how all images were stored."""
    pipeline = make_pipeline(
        Scattering2D((2, 2), scales=1, angles=2),
        PrivateLogisticRegression(classes=[0, 1], epochs=1, counting=0),
    ).fit(np.zeros((40, 4)), np.arange(40) % 2)
    li.save(pipeline, tmp_path)
    path = tmp_path / "model.json"
    record = json.loads(path.read_text())
    del record["digest"], record["steps"][0]["map"]["pixel_max"]
    path.write_text(json.dumps(record | {"digest": digest(record)}))
    with pytest.raises(InvalidParameter, match=r"features.pixel_max must be stated.*fit Scatteri"):
        li.load(tmp_path)
    certificate = json.loads((tmp_path / "certificate.json").read_text())
    del certificate["feature maps"][0]["pixel_max"]
    with pytest.raises(InvalidCertificate, match=r"features.pixel_max must be stated"):
        li.verify(with_digest(certificate))


class TestTexts:
    @pytest.mark.parametrize(
        "text, columns, expected",
        [
            ("scattering:28x28", 784, {"shape": [28, 28], "channels": 1, "scales": 2}),
            ("scattering:32x32x3", 3072, {"shape": [32, 32], "channels": 3}),
            ("scattering:8x8,scales=1,groups=9", 64, {"scales": 1, "groups": 9}),
            ("scattering:2x2x3,channels_last=true", 12, {"channels_last": True}),
            ("scattering:8x8,pixel_max=255", 64, {"pixel_max": 255.0}),
            ("scattering:2x2x3,mirror=true", 12, {"mirror": True, "opponent_colors": True}),
            ("scattering:2x2x3,opponent_colors=false", 12, {"opponent_colors": False}),
            ("fourier", 5, {"components": 2048, "gamma": 1.0, "seed": 0, "columns": 5}),
            ("fourier:512,gamma=0.5,seed=7", 5, {"components": 512, "gamma": 0.5, "seed": 7}),
            ("quadratic:64", 5, {"components": 64, "input_bound": 1.0}),
        ],
    )
    def test_name_a_map(self, text, columns, expected):
        record = map_from_text(text, columns).as_record()
        assert {name: record[name] for name in expected} == expected

    @pytest.mark.parametrize(
        "text",
        ["", "magic:3", "scattering", "scattering:8", "scattering:8x8x1x1", "scattering:axb",
         "fourier:many", "fourier:8,gamma", "fourier:8,gamma=x", "fourier:8,width=3", "bins:3"],
    )  # fmt: skip
    def test_that_name_none_are_refused(self, text):
        with pytest.raises(InvalidParameter, match="--features must be such as scattering:28x28"):
            map_from_text(text, 64)

    def test_must_fit_to_the_table(self):
        with pytest.raises(InvalidParameter, match=r"images of 64 values.*found rows of 65"):
            map_from_text("scattering:8x8", 65)


def test_two_maps_are_equal_if_their_parameters_are():
    assert ScatteringMap((8, 8)) == ScatteringMap([8, 8], groups=27)
    assert ScatteringMap((8, 8)) != ScatteringMap((8, 8), angles=4)
