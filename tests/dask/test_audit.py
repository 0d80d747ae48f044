"""Audits on a cluster: the same runs, wherever they are made."""

import numpy as np
import pytest

from lastiterate.cli import main
from lastiterate.linear_model.classifiers import PrivateLogisticRegression


@pytest.mark.filterwarnings("ignore")  # joblib's own, of how it sends functions
def test_an_audit_is_the_same_on_a_cluster(client, tmp_path, capsys):
    rows = np.random.default_rng(0).normal(size=(200, 2))
    model = PrivateLogisticRegression(batches="full", epochs=2).fit(rows, rows[:, 0] > 0)
    (tmp_path / "certificate.json").write_text(model.certificate_)
    words = ["audit", "--certificate", str(tmp_path / "certificate.json"), "--runs", "40"]
    said = []
    for more in ([], ["--cluster", client.scheduler.address]):
        assert main([*words, *more]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert main([*words, "--cluster", client.scheduler.address, "--jobs", "2"]) == 2
