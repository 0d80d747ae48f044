"""What bounds say of one run, each evaluated when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.profile.compose_with_gaussian import beside_gaussian
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.training_run import TrainingRun


class Evaluated(Mapping[str, PrivacyProfile]):
    """Guarantees by the ids of bounds; `evaluate` makes one, once."""

    def __init__(self, ids: Collection[str], evaluate: Callable[[str], PrivacyProfile]) -> None:
        self._ids, self._evaluate = dict.fromkeys(ids), evaluate
        self._known: dict[str, PrivacyProfile] = {}

    def __getitem__(self, id_: str) -> PrivacyProfile:
        if id_ not in self._ids:
            raise KeyError(id_)
        if id_ not in self._known:
            self._known[id_] = self._evaluate(id_)
        return self._known[id_]

    def __contains__(self, id_: object) -> bool:
        return id_ in self._ids

    def __iter__(self) -> Iterator[str]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)


def evaluated(run: TrainingRun, ids: Collection[str], more: float) -> Evaluated:
    """What these bounds say of the run beside a Gaussian mechanism of mu `more`."""
    return Evaluated(ids, partial(_beside, run, more))


def _beside(run: TrainingRun, more: float, id_: str) -> PrivacyProfile:
    return beside_gaussian(CATALOGUE[id_].guarantee(run), more)
