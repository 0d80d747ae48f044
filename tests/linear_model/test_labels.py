"""The label set is declared, and a label outside it does no more than any example may."""

import json

import numpy as np
import pytest

from lastiterate.certificate.verify import verify
from lastiterate.errors import InvalidParameter, PrivacyWarning
from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.inputs import positions_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 3))
SIDES = np.where(X[:, 0] > 0, "yes", "no")
CLASSIFIERS = [PrivateLogisticRegression, PrivateLinearSVC]


def stated(model):
    return json.loads(model.certificate_)["labels"]


class TestInferred:
    def test_warns_and_confesses(self):
        with pytest.warns(PrivacyWarning, match="label set was taken from y") as caught:
            model = PrivateLogisticRegression().fit(X, SIDES)
        assert "yes" not in str(caught[0].message)
        assert stated(model).startswith("inferred")
        assert verify(model.certificate_)

    def test_booleans_are_all_there_are(self):
        """Even where one is absent, which is no error to tell of."""
        model = PrivateLogisticRegression().fit(X, np.ones(400, dtype=bool))
        assert model.classes_.tolist() == [False, True]
        assert stated(model).startswith("declared")


class TestDeclared:
    def test_is_published_as_declared(self):
        model = PrivateLogisticRegression(classes=["yes", "no", "don't know"]).fit(X, SIDES)
        assert model.classes_.tolist() == ["don't know", "no", "yes"]
        assert stated(model).startswith("declared")
        assert verify(model.certificate_)

    @pytest.mark.parametrize("odd", ["AliceSmith", "", None, 7, np.nan, b"\xff"])
    def test_another_label_neither_raises_nor_is_published(self, odd):
        labels = SIDES.astype(object)
        labels[17] = odd
        model = PrivateLogisticRegression(classes=["no", "yes"], random_state=0)
        model.fit(X, labels)
        assert model.classes_.tolist() == ["no", "yes"]
        assert "Alice" not in model.certificate_

    @pytest.mark.parametrize("model", CLASSIFIERS)
    @pytest.mark.parametrize("odd", [np.nan, np.inf])
    def test_numbers_that_are_none_are_labels_like_others(self, model, odd):
        """A missing label turns a column of whole numbers into floats with a nan."""
        model = model(classes=[0, 1], random_state=0)
        labels = (X[:, 0] > 0).astype(float)
        labels[17] = odd
        end = model.fit(X, labels).parameters_
        labels[17] = 7.0
        np.testing.assert_array_equal(end, model.fit(X, labels).parameters_)

    @pytest.mark.parametrize("method", ["__hash__", "__str__", "__eq__"])
    def test_a_label_of_another_kind_is_refused(self, method):
        """Without a call of its methods, which may say what it is."""

        def fails(*_):
            raise RuntimeError("AliceSmith")

        kind = type("Odd", (), {"__hash__": lambda _: hash("no"), method: fails})
        labels = SIDES.astype(object)
        labels[17] = kind()
        with pytest.raises(InvalidParameter, match="cell of type Odd in row 18,") as refused:
            PrivateLogisticRegression(classes=["no", "yes"]).fit(X, labels)
        assert "Alice" not in str(refused.value)

    @pytest.mark.parametrize("model", CLASSIFIERS)
    @pytest.mark.parametrize("fit_intercept", [False, True])
    def test_its_gradient_is_zero(self, model, fit_intercept):
        """As if the row were 0 where there is no intercept, and whatever the row is with one."""
        model = model(classes=["no", "yes"], random_state=0, fit_intercept=fit_intercept)
        labels, ends = SIDES.astype(object), []
        labels[17] = "other"
        for size in (1.0, -5.0):
            rows = X.copy()
            rows[17] *= size
            ends.append(model.fit(rows, labels).parameters_)
        np.testing.assert_array_equal(*ends)
        if not fit_intercept:
            rows[17], labels[17] = 0.0, "yes"
            np.testing.assert_array_equal(model.fit(rows, labels).parameters_, ends[0])

    @pytest.mark.parametrize("kind", [list, np.array, lambda y: np.array(y, dtype=object)])
    @pytest.mark.parametrize("odd", ["x", 0.5, 9, None])
    def test_one_of_another_kind_does_not_change_what_the_others_are(self, kind, odd):
        """A list of numbers with one word becomes an array of words."""
        digits = (X[:, 0] > 0).astype(int).tolist()
        model = PrivateLogisticRegression(classes=[0, 1], random_state=0)
        digits[17] = odd
        end = model.fit(X, kind(digits)).parameters_
        silent = np.array(digits, dtype=object)
        silent[17] = "none of them"
        np.testing.assert_array_equal(end, model.fit(X, silent).parameters_)

    def test_numbers_by_how_they_are_written(self):
        digits = (X[:, 0] > 0).astype(int)
        model = PrivateLogisticRegression(classes=[0, 1], random_state=0)
        expected = model.fit(X, digits).parameters_
        for labels in (digits.astype(str), digits.astype(float).astype(str), digits == 1):
            np.testing.assert_array_equal(model.fit(X, labels).parameters_, expected)

    def test_no_example_has_one_of_them(self):
        model = PrivateLogisticRegression(classes=["a", "b"], random_state=0, counting=0)
        assert np.isfinite(model.fit(X, SIDES).parameters_).all()

    def test_too_few_targets(self):
        with pytest.raises(InvalidParameter, match="y must be as long as X, 400; found 399"):
            PrivateLogisticRegression(classes=["yes", "no"]).fit(X, SIDES[1:])


@pytest.mark.parametrize("classes", [["0", "1"], [0, 1], [0.0, 1.0], [False, True]])
def test_how_labels_are_stored_decides_nothing(classes):
    """One label that is no number, or none at all, changes how a reader stores all others."""
    labels = [0, 1, 1, 0]
    ways = [
        np.array(labels),
        np.array([*labels, 2.5])[:4],
        np.array([*labels, np.nan])[:4],
        np.array([*labels, None], dtype=object)[:4],
        np.array([*map(str, labels), "x"])[:4],
        np.array([*map(str, map(float, labels)), "x"])[:4],
        np.array([*map(bool, labels), "x"], dtype=object)[:4],
    ]
    known = np.unique(np.array(classes))
    assert [positions_of(way, known).tolist() for way in ways] == [labels] * len(ways)


def test_classes_that_are_one_number_are_refused():
    with pytest.raises(InvalidParameter, match="different as numbers in single"):
        PrivateLogisticRegression(classes=["1", "1.0"]).fit(np.ones((9, 1)), ["1"] * 9)
