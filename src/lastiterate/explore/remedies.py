"""Suggested changes of a run that lower epsilon, each of them accounted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lastiterate._display import short, up
from lastiterate._progress import track
from lastiterate.accounting import account
from lastiterate.errors import LastIterateError
from lastiterate.explore.model_kinds import MODELS, STATED
from lastiterate.explore.page_runs import run_from_page
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun

_WORTH_LISTING = 0.99  # of the present epsilon
_MORE_NOISE, _FEWER_EPOCHS, _SMALL_PENALTY, _RELEASE = 1.5, 0.5, 0.001, 4.0


def remedies(words: Mapping[str, Any], *, delta: float) -> list[dict[str, Any]]:
    """The changes that lower epsilon, with the new epsilon and the entries to change."""
    run = run_from_page(words)
    present = account(run).epsilon(delta)
    helping = []
    for says, changed in track("what would lower it", list(_changes(words, run))):
        try:
            epsilon = account(run_from_page({**words, **changed})).epsilon(delta)
        except LastIterateError:
            continue
        if epsilon < _WORTH_LISTING * present:
            helping.append(
                {
                    "says": says,
                    "epsilon": epsilon,
                    "epsilon_text": up(epsilon),
                    "words": changed,
                }
            )
    return sorted(helping, key=lambda one: float(one["epsilon"]))


def _changes(words: Mapping[str, Any], run: TrainingRun) -> Iterator[tuple[str, dict[str, Any]]]:
    """Candidate changes, in the units of the page's entries."""
    for name, says in (("noise_multiplier", "a noise multiplier"), ("noise_std", "a noise")):
        if words.get(name):
            more = _rounded(_MORE_NOISE * words[name])
            yield f"{says} of {short(more)} instead of {short(words[name])}", {name: more}
    for name in ("epochs", "steps"):
        if words.get(name) and words[name] >= 2:
            fewer = int(_FEWER_EPOCHS * words[name])
            yield f"{fewer:,} {name} instead of {words[name]:,}", {name: fewer}
    if words.get("model", STATED.name) not in MODELS:
        return
    if MODELS[words.get("model", STATED.name)].by_feature_norm:
        penalty = words.get("regulariser", 0.0)
        more = _rounded(2.0 * penalty) if penalty > 0.0 else _SMALL_PENALTY
        yield f"a penalty of {short(more)} instead of {short(penalty)}", {"regulariser": more}
    if run.releases == "last-iterate" and run.loss.convex:
        last = float(np.max(np.array(run.step_size) * np.array(run.noise_std)))
        more = _rounded(max(_RELEASE * last, 2.0 * run.release_noise_std))
        yield f"noise of {short(more)} on the published model", {"release_noise_std": more}
    if run.batches.resampling is Resampling.NEVER and run.batches.ordered:
        yield "batches shuffled once, in secret", {"batches": "shuffled-once"}


def _rounded(value: float) -> float:
    """A number rounded to two digits, as one would type it."""
    return float(f"{value:.2g}")
