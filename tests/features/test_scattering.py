"""Scattering features: those of the literal definition, and never longer than their bound."""

import math

import numpy as np
import pytest
from sklearn.base import clone

from lastiterate._progress import listen
from lastiterate.errors import InvalidParameter
from lastiterate.features import Scattering2D
from lastiterate.features.scattering_map import ScatteringMap, scatter
from tests.reference import scattering as literal

RANDOM = np.random.default_rng(0)
DIGITS = RANDOM.random((6, 8, 8)).astype(np.float32)


def exact_norms(rows):
    """Norms of float32 rows; squares of these are exact in float64, and so is their sum."""
    squares = rows.astype(np.float64) ** 2
    return np.array([math.sqrt(math.fsum(row)) for row in squares])


class TestIsTheLiteralOne:
    @pytest.mark.parametrize(
        "shape, scales, angles",
        [((8, 8), 2, 8), ((8, 8), 1, 8), ((7, 9), 2, 3), ((1, 5), 1, 4), ((6, 5), 3, 2)],
    )
    def test_before_it_is_normalised(self, shape, scales, angles):
        image = RANDOM.random(shape)
        found = scatter(image[np.newaxis].astype(np.float32), scales, angles)[0]
        expected = literal.channels(image, scales, angles)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_as_features(self):
        image = RANDOM.random((8, 8))
        found = Scattering2D((8, 8)).fit_transform(image.reshape(1, -1))[0]
        expected = literal.normalised(literal.channels(image, 2, 8), 27, 1e-5)
        np.testing.assert_allclose(found, expected, atol=2e-6)

    def test_of_several_colours(self):
        image = RANDOM.random((2, 8, 8))
        maps = np.array([literal.channels(colour, 1, 4) for colour in image])
        expected = literal.normalised(maps, 2, 1e-3)  # 5 channels: one group for each colour
        transform = Scattering2D((8, 8), channels=2, scales=1, angles=4, variance_floor=1e-3)
        for rows in (image.reshape(1, -1), image[np.newaxis], image.transpose(1, 2, 0)[np.newaxis]):
            np.testing.assert_allclose(transform.fit_transform(rows)[0], expected, atol=2e-6)
        last = clone(transform).set_params(channels_last=True)
        flat = image.transpose(1, 2, 0).reshape(1, -1)
        np.testing.assert_allclose(last.fit_transform(flat)[0], expected, atol=2e-6)
        np.testing.assert_allclose(last.fit_transform(image[np.newaxis])[0], expected, atol=2e-6)

    def test_of_opponent_colours(self):
        red, green, blue = image = RANDOM.random((3, 8, 8))
        opponents = [
            (red + green + blue) / math.sqrt(3),
            (red - blue) / math.sqrt(2),
            (red - 2 * green + blue) / math.sqrt(6),
        ]
        maps = np.array([literal.channels(colour, 1, 4) for colour in opponents])
        expected = literal.normalised(maps, 3, 1e-3)
        settings = {"channels": 3, "scales": 1, "angles": 4, "variance_floor": 1e-3}
        transform = Scattering2D((8, 8), **settings)
        for rows in (image.reshape(1, -1), image.transpose(1, 2, 0)[np.newaxis]):
            np.testing.assert_allclose(transform.fit_transform(rows)[0], expected, atol=2e-6)
        as_given = np.array([literal.channels(colour, 1, 4) for colour in image])
        found = Scattering2D((8, 8), opponent_colors=False, **settings).fit_transform(rows)[0]
        np.testing.assert_allclose(found, literal.normalised(as_given, 3, 1e-3), atol=2e-6)

    @pytest.mark.parametrize("channels", [1, 2, 3])
    def test_of_an_image_and_its_mirror_image(self, channels):
        image = RANDOM.random((1, channels, 6, 9))
        plain = Scattering2D((6, 9), channels=channels)
        both = [plain.fit_transform(one)[0] for one in (image, image[..., ::-1])]
        found = [
            clone(plain).set_params(mirror=True).fit_transform(one)[0]
            for one in (image, image[..., ::-1])
        ]
        np.testing.assert_allclose(found[0], (both[0] + both[1]) / 2, atol=1e-7)
        np.testing.assert_array_equal(*found)
        assert np.abs(both[0] - both[1]).max() > 0.01

    def test_a_moved_image_has_nearly_moved_features(self):
        """No reference needed: the definition commutes with shifts by whole coarse pixels."""
        image = np.zeros((1, 32, 32), dtype=np.float32)
        image[0, 12:20, 12:20] = RANDOM.random((8, 8))
        there, moved = scatter(image, 2, 8), scatter(np.roll(image, 4, axis=2), 2, 8)
        np.testing.assert_allclose(moved[..., 1:], there[..., :-1], atol=1e-5)


def images(shape, dtype=np.float64):
    """Ordinary and hostile images."""
    pixels = math.prod(shape)
    spike = np.zeros(pixels)
    spike[pixels // 2] = 1.0
    ordinary = [RANDOM.random(pixels) for _ in range(5)]
    patterns = [spike, 1.0 - spike, np.arange(pixels) % 2.0, np.linspace(0.0, 1.0, pixels)]
    constant = [np.zeros(pixels), np.ones(pixels)]
    scales = [1e-40, 1e-3, 1.0, 255.0, 1e5, 1e30, -1.0]
    if dtype == np.float64:
        scales += [1e-300, 1e300]
    every = (*ordinary, *patterns, *constant)
    return np.array([scale * one for one in every for scale in scales]).astype(dtype)


class TestTheBoundHolds:
    @pytest.mark.parametrize("floor", [1e-12, 1e-5, 1.0])
    @pytest.mark.parametrize(
        "settings", [{}, {"scales": 1}, {"groups": 81}, {"groups": 1}, {"mirror": True}]
    )
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_for_hostile_images(self, floor, settings, dtype):
        transform = Scattering2D((8, 8), variance_floor=floor, **settings)
        features = transform.fit_transform(images((8, 8), dtype))
        assert np.isfinite(features).all()
        norms = exact_norms(features)
        assert norms.max() <= transform.norm_bound
        assert norms.max() > 0.5 or floor == 1.0  # the attack comes near

    @pytest.mark.parametrize("mirror", [False, True])
    def test_for_hostile_colours(self, mirror):
        transform = Scattering2D((4, 4), channels=3, variance_floor=1e-12, mirror=mirror)
        one = images((4, 4))
        others = [RANDOM.permutation(len(one)) for _ in range(4)]
        rows = np.concatenate([np.hstack([one, one[i], one[i[::-1]]]) for i in others])
        norms = exact_norms(transform.fit_transform(rows))
        assert 0.99 < norms.max() <= transform.norm_bound

    def test_and_is_nearly_reached(self):
        features = Scattering2D((8, 8), variance_floor=1e-12).fit_transform(images((8, 8)))
        assert exact_norms(features).max() > 1.0 - 1e-5

    @pytest.mark.parametrize("size", [1, 3, 1000])
    def test_whatever_is_normalised(self, size):
        """The proof uses nothing of the transform: groups may hold any numbers."""
        mapped = ScatteringMap((8, 8), scales=1, angles=2, groups=3, variance_floor=1e-12)
        groups = np.concatenate([
            RANDOM.normal(size=(50, 3, size)) * 10.0 ** RANDOM.uniform(-38, 34, size=(50, 3, 1)),
            np.full((1, 3, size), 3e38),
            np.full((1, 3, size), 1e-45),
            1e10 + RANDOM.normal(size=(10, 3, size)),
        ]).astype(np.float32)  # fmt: skip
        groups[:10, :, 0] *= -1e3
        stretched = mapped.width / (3 * size)  # the map divides by the root of its own width
        features = mapped._normalise(groups)
        assert np.isfinite(features).all()
        assert (exact_norms(features) * math.sqrt(stretched) <= 1.0).all()

    def test_dark_and_constant_images_are_short(self):
        features = Scattering2D((8, 8)).fit_transform(np.array([np.zeros(64), np.full(64, 0.7)]))
        assert np.isfinite(features).all()
        assert not features[0].any()
        assert exact_norms(features)[1] < 1.0


class TestRows:
    def test_count_in_units_of_the_largest_value(self):
        pixels = RANDOM.integers(256, size=(3, 64), dtype=np.uint8)
        expected = Scattering2D((8, 8)).fit_transform(pixels / np.float32(255))
        for kind in (np.uint8, np.int64, np.float32, np.float64, object):
            found = Scattering2D((8, 8), pixel_max=255).fit_transform(pixels.astype(kind))
            np.testing.assert_array_equal(found, expected)

    def test_one_image_decides_nothing_for_others(self):
        """Dim images, whose features go with their scale."""
        dim = np.linspace(0, 40, 64)[np.newaxis] + np.arange(300)[:, np.newaxis] % 3
        stored = dim.astype(np.uint8)
        for one in (np.full(64, 256), np.full(64, 0.5), np.full(64, 1e300), np.full(64, -3)):
            other = np.array([*stored[:-1], one])
            for pixel_max in (1.0, 255.0):
                transform = Scattering2D((8, 8), scales=1, pixel_max=pixel_max)
                before, after = (transform.fit_transform(rows) for rows in (stored, other))
                np.testing.assert_array_equal(after[:-1], before[:-1])

    @pytest.mark.parametrize("brighter", [1.5, 255.0, 1e280])
    def test_of_brighter_images_are_scaled_down_to_it(self, brighter):
        image = DIGITS[:1] / DIGITS[0].max()
        transform = Scattering2D((8, 8))
        found = transform.fit_transform(image.astype(np.float64) * brighter)
        np.testing.assert_allclose(found, transform.fit_transform(image), atol=1e-6)

    def test_a_row_depends_on_nothing_but_itself(self):
        rows = images((8, 8))
        transform = Scattering2D((8, 8))
        before = transform.fit_transform(rows)
        changed = rows.copy()
        changed[5] = 1e299
        after = transform.fit_transform(changed)
        kept = np.arange(len(rows)) != 5
        np.testing.assert_array_equal(after[kept], before[kept])

    def test_are_the_same_in_a_file(self, tmp_path):
        rows = RANDOM.random((200, 64))
        transform = Scattering2D((8, 8))
        expected = transform.fit_transform(rows)
        mapped = transform.transform_to(rows, tmp_path / "rows.f4")
        assert isinstance(mapped, np.memmap)
        np.testing.assert_array_equal(mapped, expected)
        out = np.lib.format.open_memmap(
            tmp_path / "rows.npy", mode="w+", dtype=np.float32, shape=expected.shape
        )
        assert transform.transform(rows, out=out) is out
        np.testing.assert_array_equal(out, expected)

    def test_an_interrupted_file_is_removed(self, tmp_path):
        rows = np.zeros((200, 64))
        rows[-1, -1] = np.nan
        with pytest.raises(InvalidParameter, match="X must be finite"):
            Scattering2D((8, 8)).transform_to(rows, tmp_path / "rows.f4")
        assert not (tmp_path / "rows.f4").exists()

    def test_progress_is_reported(self):
        heard = []
        with listen(lambda what, share: heard.append((what, share))):
            Scattering2D((8, 8)).transform(np.zeros((1_000, 64)))
        assert len(heard) > 3
        assert heard[-1] == ("scattering features", 1.0)


OUT_OF_RANGE = {
    "shape": [8, (8, 0), (8, math.nan)],
    "channels": [0],
    "scales": [0, 7],
    "angles": [1],
    "groups": [5, 0],
    "variance_floor": [0.0, math.nan],
    "channels_last": ["no"],
    "opponent_colors": [True, 1],
    "mirror": [math.nan],
    "pixel_max": [0.0, math.nan, "bytes"],
}


class TestRefuses:
    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, np.finfo(np.longdouble).max])
    def test_numbers_that_are_none(self, value):
        if np.isfinite(np.float64(value)):
            pytest.skip("long doubles are doubles here")
        rows = np.zeros((3, 64), dtype=np.asarray(value).dtype)
        rows[1, 5] = value
        for method in (Scattering2D((8, 8)).fit, Scattering2D((8, 8)).transform):
            with pytest.raises(InvalidParameter, match="X must be finite"):
                method(rows)

    @pytest.mark.parametrize("named", OUT_OF_RANGE)
    def test_parameters_out_of_range(self, named):
        for value in OUT_OF_RANGE[named]:
            with pytest.raises(InvalidParameter, match=named):
                Scattering2D(**{"shape": (8, 8), named: value}).fit(np.zeros((2, 64)))

    def test_images_of_another_size(self):
        with pytest.raises(InvalidParameter, match="8 x 8 x 1 = 64 values; found rows of 65"):
            Scattering2D((8, 8)).fit(np.zeros((2, 65)))
        with pytest.raises(InvalidParameter, match="images of shape"):
            Scattering2D((8, 8), channels=3).fit(np.zeros((2, 8, 8, 4)))

    def test_memory_of_another_size(self):
        with pytest.raises(InvalidParameter, match="out must be a float32 array"):
            Scattering2D((8, 8)).transform(np.zeros((2, 64)), out=np.zeros((2, 64)))


def test_the_shape_may_follow_from_the_number_of_pixels():
    assert Scattering2D().fit_transform(np.zeros((1, 49))).shape == (1, 81 * 2 * 2)
    assert Scattering2D().fit_transform(np.zeros((1, 7))).shape == (1, 81 * 2)
    assert Scattering2D((28, 28)).feature_map(784).width == 3_969
    assert Scattering2D((32, 32), channels=3).feature_map(3_072).width == 15_552
