"""Estimators whose rows belong to persons with several of them."""

import json

import numpy as np
import pytest

import lastiterate as li
from lastiterate.errors import InvalidCertificate
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.private_score import PrivateScore

X = np.random.default_rng(0).normal(size=(600, 3))
Y = X[:, 0] > 0.0
SETTINGS = {"classes": [False, True], "batch_size": 100, "random_state": 1, "counting": 0.0}


@pytest.fixture(scope="module")
def models() -> dict[int, PrivateLogisticRegression]:
    return {
        most: PrivateLogisticRegression(examples_per_person=most, **SETTINGS).fit(X, Y)
        for most in (1, 3)
    }


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
class TestPersons:
    def test_the_target_is_met_for_persons(self, models: dict) -> None:
        for most, model in models.items():
            report = li.verify(model.certificate_, parameters=model.parameters_)
            assert report.run.examples_per_person == most
            assert 0.9 < report.epsilon(1e-5) <= 1.0
        alone = models[3].privacy_.run.replace(examples_per_person=1)
        assert li.account(alone).epsilon(1e-5) < 0.5

    def test_a_certificate_says_that_nothing_enforces_it(self, models: dict) -> None:
        needs = [one["needs"] for one in json.loads(models[3].certificate_)["hypotheses"]]
        assert "no person with more than 3 of the examples" in needs
        assert "person" not in models[1].certificate_

    def test_a_certificate_for_rows_is_none_for_persons(self, models: dict) -> None:
        forged = models[1].certificate_.replace(
            '"releases": "last-iterate"',
            '"releases": "last-iterate",\n    "examples_per_person": 3',
        )
        with pytest.raises(InvalidCertificate, match="does not hold"):
            li.verify(forged)

    def test_a_score_costs_persons_what_was_asked_for(self, models: dict) -> None:
        score = PrivateScore.of(models[3], X, Y, epsilon=0.1, random_state=1)
        assert 0.099 < score.privacy.epsilon(1e-5) <= 0.1000001
        assert 1.0 < score.joint_report(models[3].privacy_).epsilon(1e-5) < 1.05
