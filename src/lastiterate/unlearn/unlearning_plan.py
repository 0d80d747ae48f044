"""How many more steps make a published model forget some of its examples?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lastiterate import _check
from lastiterate._digits import up
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds.catalogue import given_order
from lastiterate.errors import InvalidParameter, InvalidType, UnreachableTarget
from lastiterate.other_releases import Release, joint_mu
from lastiterate.profile.compose_with_mixture import compose_with_mixture
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
from lastiterate.run.batch_rules.rules import BatchRule, Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.extra_steps import MOST_STEPS, ExtraSteps, fewest, last_of
from lastiterate.unlearn.unlearning_result import Unlearning


def unlearning(
    run: TrainingRun,
    *,
    extra_steps: int | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    examples: int = 1,
    step_size: float | None = None,
    noise_std: float | None = None,
    release_noise_std: float | None = None,
    order_kept: bool = False,
    batches: BatchRule | None = None,
    other_releases: Sequence[Release] = (),
) -> Unlearning:
    """The guarantee for unlearned examples after extra steps, or the least steps for a target.

    Parameters
    ----------
    run : TrainingRun
        The training.  With adjacency "zero-out" the model is compared with one from which the
        gradients of the examples had been left out; with "replace", with one that had seen others
        in their place, which the extra steps then see.
    extra_steps : int, optional
        K.  Left out where a target is given: then the least that meets it.
    epsilon, delta : float, optional
        The target.
    examples : int
        How many must go at once.
    step_size, noise_std, release_noise_std : float, optional
        Of the extra steps, and on their release; as in the (last step of the) training if left out.
    order_kept : bool
        Whether the extra steps go on in the secret order of the training, for batches that are
        shuffled once.  Otherwise they take a new order, and nothing secret need be kept.
    batches : BatchRule, optional
        Of the extra steps; as in the training if left out.
    other_releases : sequence of Release, optional
        Statistics of the same examples that stay published, which no step makes forgotten.

    Returns
    -------
    Unlearning
        A profile: `epsilon(delta)`, `delta(epsilon)`, `tradeoff`, .. of those who are forgotten.

    Examples
    --------
    >>> import lastiterate as li
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=0.26, regulariser=0.01), sensitivity=1.0,
    ...     batches=li.ShuffledEachEpoch(examples=10_000, batch_size=500), steps=800,
    ...     step_size=2.0, noise_std=0.01, adjacency="zero-out")
    >>> found = li.unlearning(run, epsilon=0.1, delta=1e-5)
    >>> found.extra_steps, found.epsilon(1e-5) <= 0.1
    (62, True)
    >>> li.unlearning(run, extra_steps=61).epsilon(1e-5) <= 0.1
    False
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    if run.releases == "every-iterate":
        must_be = "one that publishes its last iterate only (what is out cannot be forgotten)"
        raise InvalidParameter("run", f"releases={run.releases!r}", must_be=must_be)
    most = run.batches.examples - 1
    many = _check.count("examples", examples, at_least=1, at_most=max(most, 1))
    steps = ExtraSteps(
        run,
        step_size=last_of(run.step_size) if step_size is None else step_size,
        noise_std=last_of(run.noise_std) if noise_std is None else noise_std,
        release=run.release_noise_std if release_noise_std is None else release_noise_std,
        rule=run.batches if batches is None else batches,
    )
    question = _Question(run, steps, many, order_kept, tuple(other_releases))
    if extra_steps is not None:
        if epsilon is not None or delta is not None:
            must_be = "left out where a target (epsilon, delta) is given"
            raise InvalidParameter("extra_steps", extra_steps, must_be=must_be)
        return question.after(_check.count("extra_steps", extra_steps, at_least=0))
    if epsilon is None or delta is None:
        missing = "epsilon" if epsilon is None else "delta"
        raise InvalidParameter(missing, None, must_be="given, unless extra_steps is")
    return question.least(
        _check.target_epsilon("epsilon", epsilon),
        _check.number("delta", delta, above=0.0, below=1.0),
    )


@dataclass(frozen=True)
class _Question:
    run: TrainingRun
    steps: ExtraSteps
    examples: int
    order_kept: bool
    other_releases: tuple[Release, ...]

    def after(self, many: int) -> Unlearning:
        return self._found(many, self._report(many))

    def least(self, epsilon: float, delta: float) -> Unlearning:
        """The result with the fewest extra steps that meet the target, by quick bounds first.

        All bounds together never need more steps than the quick ones alone.
        """
        self._check_besides(epsilon, delta)
        reports: dict[int, PrivacyReport] = {}

        def told(many: int) -> float:
            reports[many] = self._report(many)
            return reports[many].epsilon(delta)

        def told_quickly(many: int) -> float:
            return self._report(many, cheaply=True).epsilon(delta)

        about = fewest(self.steps, told_quickly, epsilon) if self._bounds is None else None
        many = fewest(self.steps, told, epsilon, start=about or 1)
        if many is not None:
            return self._found(many, reports[many])
        raise UnreachableTarget(
            f"({epsilon:g}, {delta:g})",
            f"{MOST_STEPS:,} extra steps are not enough",
            possible_with="a penalty (strong convexity), more noise_std in the extra steps, or a "
            "release_noise_std",
        )

    def _found(self, many: int, report: PrivacyReport) -> Unlearning:
        extra = self.steps.described(max(many, 1))
        return Unlearning(
            self.run, extra, many, self.examples, self.order_kept, report, self.other_releases
        )

    def _report(self, many: int, *, cheaply: bool = False) -> PrivacyReport:
        report = account(self._with(self.steps.as_release_noise(many)), bounds=self._bounds)
        report = report.cheap() if cheaply or self._is_slow_besides else report
        if not self.other_releases:
            return report
        more = GaussianMixtureProfile([1.0], [self._other_mu])
        every = {id_: compose_with_mixture(one, more) for id_, one in report.used.items()}
        return replace(report, all=every, other_releases=self.other_releases)

    @property
    def _other_mu(self) -> float:
        """The mu of what stays published, for all of the examples."""
        return self.examples * joint_mu(self.other_releases)

    def _check_besides(self, epsilon: float, delta: float) -> None:
        """Raise `UnreachableTarget` where the other releases alone use up the target."""
        alone = GaussianProfile(self._other_mu).epsilon(delta) if self.other_releases else 0.0
        if not alone < epsilon:
            kinds = " and ".join(one.kind for one in self.other_releases)
            raise UnreachableTarget(
                f"({epsilon:g}, {delta:g})",
                f"what was published beside the model ({kinds}) stays published, and has epsilon "
                f"{up(alone)} alone for {self.examples:,} of the examples",
                possible_with="a larger epsilon, fewer examples at once, or training again "
                "(center=False and counting=0 publish nothing else)",
            )

    def _with(self, release_noise: float) -> TrainingRun:
        run = self.run.replace(release_noise_std=release_noise)
        return run if self.examples == 1 else run.replace(examples_per_person=self.examples)

    @property
    def _bounds(self) -> list[str] | None:
        # A bound that hides positions by exchanging examples would have to exchange them in the
        # extra steps, too, where these go on in the order of the training.
        kept = self.order_kept and self.run.batches.resampling is Resampling.ONCE
        return given_order() if kept else None

    @property
    def _is_slow_besides(self) -> bool:
        """Whether whole curves are needed, of bounds for which that takes long."""
        drawn = self.run.batches.resampling
        return bool(
            self.other_releases
            and self.run.batches.exact_size
            and drawn is not Resampling.EACH_STEP
        )
