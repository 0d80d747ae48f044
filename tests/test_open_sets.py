"""Batch rules, found where they register: accounted, trained and audited as they are drawn.

No rule is named here but in `NOT_FROM_SIZES`, so that a new one is tested by being there.
"""

import json
import subprocess
import sys
from collections import defaultdict
from fractions import Fraction
from functools import cache
from itertools import islice, product
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.cli import main
from lastiterate.errors import InvalidParameter
from lastiterate.lower_bounds.participation import participation as chain
from lastiterate.run.batch_rules.base import RULES, BatchRule, Resampling
from lastiterate.run.batch_rules.drawn import SampledRule
from lastiterate.run.batch_rules.ordered import PositionedRule
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import batch_sequence
from tests.reference.draws import outcomes
from tests.slow import slow_if

NOT_FROM_SIZES = {"fixed-order": lambda examples, size: [li.FixedOrder(examples, size, (2, 3, 6))]}
MORE_OF = {"poisson": lambda examples, size: [li.PoissonSampled(examples, size, size + 1)]}
RATIO = 0.5  # of what a participation moves, and the noise of a step
SIZES = [(3, 1), (5, 2)]  # a whole number of batches, and one example left over
STEPS = {
    Resampling.NEVER: 8,
    Resampling.ONCE: 8,
    Resampling.EACH_EPOCH: 4,
    Resampling.EACH_FEW_EPOCHS: 4,
    Resampling.EACH_STEP: 2,
}


def instances(kind, sizes):
    """Rules of this kind for so many examples in batches of so many."""
    if kind.from_sizes:
        return [_of_sizes(kind, *sizes), *MORE_OF.get(kind.name, lambda *_: [])(*sizes)]
    assert kind.name in NOT_FROM_SIZES, f"say how to make a {kind.__name__} for the tests"
    return NOT_FROM_SIZES[kind.name](*sizes)


def _of_sizes(kind, examples, size):
    return kind.of_sizes(examples, size if kind.ordered else None)


def steps_of(rule):
    return STEPS[rule.resampling]


def shown(rule):
    return f"{rule.name}-{rule.examples}-{rule.largest_size}"


RULES_TO_TRY = [rule for kind in RULES.values() for size in SIZES for rule in instances(kind, size)]


def each_rule(kept=lambda rule: True, *, slow=lambda rule: False):
    cases = slow_if(lambda rule: has_many_draws(rule) or slow(rule), filter(kept, RULES_TO_TRY))
    return pytest.mark.parametrize("rule", cases, ids=shown)


each_kind = pytest.mark.parametrize("kind", RULES.values(), ids=lambda kind: kind.name)


def has_many_draws(rule):
    """Whether each of several examples may be in any batch, anew in each epoch."""
    return (
        rule.resampling in (Resampling.EACH_EPOCH, Resampling.EACH_FEW_EPOCHS)
        and rule.largest_size == rule.examples > min(SIZES)[0]
    )


def is_accounted_slowly(rule):
    return rule.resampling is Resampling.EACH_STEP and rule.exact_size


def is_drawn(rule):
    """Whether the rule says which examples a step sees, and not of one of them only."""
    return rule.from_sizes


@cache
def numbered(count):
    """Examples whose target is their number."""
    return bounded(np.zeros((count, 1)), np.arange(count), bound=1.0, intercept=0.0)


def drawn(rule, chance, steps=None):
    """The examples that each step of the trainer sees."""
    laid_out, selections = batch_sequence(rule, numbered(rule.examples), chance)
    return [laid_out.targets[one] for one in islice(selections, steps or steps_of(rule))]


def laws(rule, steps=None):
    """For each example, the probability of every set of steps that see it, as drawn."""
    return _laws_of(rule, steps or steps_of(rule))


@cache
def _laws_of(rule, steps):
    if not is_drawn(rule):
        among = np.arange(steps)
        seen = tuple(np.flatnonzero(rule.position_at(among) == 0).tolist())
        return [{seen: Fraction(1)}]
    return _laws(rule.examples, outcomes(lambda chance: drawn(rule, chance, steps)))


def _laws(examples, batches_with_probability):
    found = [defaultdict(lambda: defaultdict(int)) for _ in range(examples)]
    for batches, probability in batches_with_probability:
        members, ratio = [batch.tolist() for batch in batches], probability.as_integer_ratio()
        for example, law in enumerate(found):
            law[tuple(k for k, batch in enumerate(members) if example in batch)][ratio] += 1
    # Many are alike, and fractions are slow to add up.
    return [{seen: _sum(alike) for seen, alike in law.items()} for law in found]


def _sum(often):
    return sum(count * Fraction(*ratio) for ratio, count in often.items())


def possible(rule, steps=None):
    """Every set of steps that may be those that see an example."""
    return {seen for law in laws(rule, steps) for seen in law}


def run_of(rule, **changes):
    steps = steps_of(rule)
    settings = {
        "loss": li.Loss(smoothness=1.0),
        "sensitivity": RATIO * rule.batch_size,
        "batches": rule,
        "steps": steps,
        "step_size": 0.5,
        "noise_std": 1.0,
    }
    return li.TrainingRun(**(settings | changes))


def schedule(rule):
    """No two alike, and not in order."""
    return (1.0 + np.random.default_rng(1).permutation(steps_of(rule)) / 10).tolist()


either_noise = pytest.mark.parametrize("scheduled", [False, True], ids=["constant", "schedule"])


class TestAccounted:
    @each_rule()
    @either_noise
    def test_composition_charges_the_steps_that_see_the_worst_example(self, rule, scheduled):
        noise = np.array(schedule(rule) if scheduled else [1.0] * steps_of(rule))
        run = run_of(rule, noise_std=noise.tolist() if scheduled else 1.0, releases="every-iterate")
        per_step = (RATIO / noise) ** 2
        worst = max(sum(per_step[list(seen)]) for seen in possible(rule)) ** 0.5
        charged = li.account(run).all["composition/fixed-order"].gdp()
        assert worst <= charged <= worst * (1 + 1e-9)

    @each_rule(slow=is_accounted_slowly)
    @pytest.mark.parametrize("released", ["last-iterate", "last-iterate-and-order"])
    @either_noise
    def test_no_less_than_what_linear_losses_tell(self, rule, released, scheduled):
        noise = schedule(rule) if scheduled else 1.0
        report = li.account(run_of(rule, noise_std=noise, releases=released))
        std = 0.5 * np.linalg.norm(np.broadcast_to(noise, steps_of(rule)))
        for law in laws(rule):
            means = np.array([0.5 * RATIO * len(seen) / std for seen in law])
            weights = np.array([float(p) for p in law.values()])
            for epsilon in (0.0, 0.5, 2.0):
                assert report.delta(epsilon) >= divergence(weights, means, epsilon) - 1e-9

    @each_rule()
    @pytest.mark.parametrize("short", [False, True], ids=["epochs", "a step"])
    def test_what_it_says_of_its_steps_is_as_drawn(self, rule, short):
        steps = 1 if short else steps_of(rule)
        what_it_says_is_as_drawn(rule.stopped(steps), steps)

    @each_rule(lambda rule: isinstance(rule, PositionedRule) and is_drawn(rule))
    def test_steps_that_visit_one_position_see_one_batch(self, rule):
        visited = rule.position_at(np.arange(steps_of(rule)))
        batches = [set(batch.tolist()) for batch in drawn(rule, Randomness(SeededBits(0)))]
        for (place, batch), (other, again) in product(zip(visited, batches, strict=True), repeat=2):
            if rule.resampling is not Resampling.EACH_EPOCH and (batch or again):
                assert (batch == again) == (place == other)
        length = rule.batches_per_epoch
        for epoch in (visited[:length], visited[length : 2 * length]):
            assert len(set(epoch.tolist())) == len(epoch)


def what_it_says_is_as_drawn(rule, steps):
    sets, places = possible(rule, steps), range(rule.position_count(steps))
    if rule.resampling in (Resampling.NEVER, Resampling.ONCE):
        said = [tuple(rule.participations(place, steps).tolist()) for place in places]
        assert set(said) | {()} == sets | {()}
    else:
        epochs = rule.resampling is Resampling.EACH_EPOCH
        may_see = [
            range(steps) if epochs else rule.participations(place, steps) for place in places
        ]
        assert {k for seen in may_see for k in seen} == {k for seen in sets for k in seen}
    assert rule.most_participations(steps) == max(map(len, sets))
    longest = max(max(np.diff(seen, append=steps), default=1) for seen in sets)
    assert longest <= rule.longest_wait(steps) <= longest + 1


def divergence(weights, means, epsilon):
    """Of N(0, 1) and a mixture of N(mean, 1) in either direction, exactly.

    The ratio of their densities increases, so the best test is a threshold.
    """
    thresholds = np.linspace(-8.0, 8.0 + means.max(), 2_001)[:, None]
    plain = ndtr(-thresholds[:, 0])
    mixed = ndtr(means - thresholds) @ weights
    growth = np.exp(epsilon)
    return max(0.0, (mixed - growth * plain).max(), ((1 - plain) - growth * (1 - mixed)).max())


class TestTrained:
    @each_rule(is_drawn)
    def test_batches_have_the_size_that_noise_is_scaled_to(self, rule):
        for seed in range(5):
            for batch in drawn(rule, Randomness(SeededBits(seed)), 20):
                assert len(set(batch.tolist())) == batch.size <= rule.largest_size
                assert not rule.exact_size or batch.size == rule.batch_size

    @each_kind
    def test_chance_decides_exactly_where_the_rule_says(self, kind):
        if not kind.from_sizes:
            with pytest.raises(InvalidParameter, match="a rule that says which examples"):
                batch_sequence(instances(kind, (40, 4))[0], numbered(40), Randomness())
            return
        rule = _of_sizes(kind, 40, 4)
        length = rule.batches_per_epoch
        first, second = (
            [batch.tolist() for batch in drawn(rule, Randomness(SeededBits(seed)), 2 * length)]
            for seed in (0, 1)
        )
        assert (first == second) == (rule.resampling is Resampling.NEVER)
        anew = rule.resampling not in (Resampling.NEVER, Resampling.ONCE)
        epochs = [sorted(map(sorted, first[:length])), sorted(map(sorted, first[length:]))]
        if rule.in_blocks == rule.name:  # which examples share a batch never changes
            assert epochs[0] == epochs[1]
            epochs = [first[:length], first[length:]]
        assert (epochs[0] != epochs[1]) == anew

    @each_rule(lambda rule: rule.in_blocks == rule.name)
    def test_a_mapped_file_is_read_with_the_same_law(self, rule, tmp_path):
        whole = rule.batch_size * rule.batches_per_epoch
        rule = _of_sizes(type(rule), whole, rule.batch_size)
        rows = np.memmap(tmp_path / "rows", dtype=np.float64, mode="w+", shape=(whole, 1))
        mapped = bounded(rows, np.arange(whole), bound=1.0, intercept=0.0)
        assert mapped.is_mapped

        def read(chance):
            _, selections = batch_sequence(rule, mapped, chance)
            return [mapped.targets[one] for one in islice(selections, steps_of(rule))]

        assert _laws(whole, outcomes(read)) == laws(rule)


class TestAudited:
    @each_rule()
    def test_the_chain_has_the_law_that_is_drawn(self, rule):
        run = run_of(rule)
        if rule.resampling is not Resampling.NEVER or rule.position_count(run.steps) == 1:
            followed = law_of(chain(run), run.steps)
            for law in laws(rule):
                expected = {seen: float(p) for seen, p in law.items()}
                assert followed == pytest.approx(expected, abs=1e-12)
            return
        for position in range(rule.position_count(run.steps)):
            ((seen, probability),) = law_of(chain(run, position=position), run.steps).items()
            assert probability == 1.0
            assert list(seen) == rule.participations(position, run.steps).tolist()
        (last,) = law_of(chain(run), run.steps)
        assert last[-1] == run.steps - 1


def law_of(chain, steps):
    """The probability of every set of steps that the chain may take part in."""
    reached = {(): chain.start}
    for k in range(steps):
        stays, takes = chain.step(k)
        reached = {
            after: states
            for seen, before in reached.items()
            for after, states in ((seen, before @ stays), ((*seen, k), before @ takes))
            if states.sum() > 1e-12
        }
    return {seen: float(states.sum()) for seen, states in reached.items()}


@each_kind
class TestHasWords:
    def rule(self, kind):
        return instances(kind, SIZES[0])[0]

    def test_in_reports(self, kind):
        for released in ("last-iterate", "every-iterate"):
            text = str(li.account(run_of(self.rule(kind), releases=released)))
            assert self.rule(kind).described() in " ".join(text.split())

    def test_in_files(self, kind):
        run = run_of(self.rule(kind))
        assert li.TrainingRun.from_json(run.to_json()) == run
        assert li.TrainingRun.from_toml(run.to_toml()) == run

    def test_in_commands(self, kind, tmp_path, capsys):
        run = run_of(self.rule(kind))
        if kind.from_sizes:
            given = ["--batches", kind.name, "--examples", "3", "--steps", str(run.steps)]
            given += ["--batch-size", "1"] if kind.ordered else []
            given += ["--step-size", "0.5", "--noise-std", "1", "--smoothness", "1"]
            given += ["--sensitivity", str(run.sensitivity)]
        else:
            (tmp_path / "run.toml").write_text(run.to_toml())
            given = [str(tmp_path / "run.toml")]
        assert main(["account", *given, "--json"]) == 0
        record = json.loads(capsys.readouterr().out)
        assert li.TrainingRun.from_json(json.dumps(record["run"])) == run
        assert record["epsilon"] == li.account(run).epsilon(1e-5)

    def test_in_certificates(self, kind):
        from lastiterate.certificate.verify import verify
        from lastiterate.linear_model import PrivateLogisticRegression
        from lastiterate.train.settings import TRAINED

        x = np.random.default_rng(0).normal(size=(40, 2))
        model = PrivateLogisticRegression(
            epsilon=None, noise_std=0.5, batches=kind.name, batch_size=4, epochs=1
        )
        if kind.name not in TRAINED:
            assert not (kind.from_sizes and kind.exact_size)
            with pytest.raises(InvalidParameter, match="batches must be one of"):
                model.fit(x, x[:, 0] > 0)
            return
        if not kind.ordered:
            model.set_params(batch_size=None)
        model.fit(x, x[:, 0] > 0)
        assert type(verify(model.certificate_).run.batches) is kind


@pytest.fixture
def registry():
    """The rules, which are as before once the test is over."""
    before = dict(RULES)
    yield RULES
    RULES.clear()
    RULES.update(before)


def whole_rule(base):
    """All that a rule of this base has to say, without regard to what it means."""
    said = {
        "name": "whole",
        "resampling": Resampling.ONCE,
        "in_words": "somehow",
        "in_secret": "somehow, in secret",
    }
    return said | {name: lambda *_: None for name in sorted(base.__abstractmethods__)}


def made(base, like=None, **said):
    return type("Made", (base,), whole_rule(base if like is None else like) | said)


LACKING = [
    (base, name) for base in (BatchRule, PositionedRule, SampledRule) for name in whole_rule(base)
]


class TestRefusals:
    @pytest.mark.parametrize("base", [BatchRule, PositionedRule, SampledRule])
    def test_a_whole_rule_can_be_made(self, base, registry):
        kind = made(base)
        assert registry["whole"] is kind
        assert kind(3, 1).examples == 3

    @pytest.mark.parametrize("base, lacking", LACKING)
    def test_one_that_lacks_anything_cannot(self, base, lacking, registry):
        said = whole_rule(base)
        del said[lacking]
        with pytest.raises(TypeError, match=lacking):
            type("Partial", (base,), said)(3, 1)

    def test_two_rules_of_one_name_cannot(self, registry):
        with pytest.raises(TypeError, match="already"):
            made(PositionedRule, name=next(iter(RULES)))

    def test_one_that_is_drawn_at_an_unknown_time_cannot(self, registry):
        with pytest.raises(TypeError, match="resampling must be"):
            made(PositionedRule, resampling="now and then")

    @pytest.mark.parametrize(
        "kind", [kind for kind in RULES.values() if hasattr(kind, "position_at")]
    )
    def test_one_that_visits_others_than_what_it_derives_from_cannot(self, kind, registry):
        with pytest.raises(TypeError, match="derive from PositionedRule"):
            made(kind, PositionedRule)

    @pytest.mark.parametrize("steps", [1, 2, 6])
    def test_positions_may_be_visited_in_any_order(self, steps, registry):
        def backwards(rule, steps):
            return -1 - steps % rule.batches_per_epoch + rule.batches_per_epoch

        what_it_says_is_as_drawn(made(PositionedRule, position_at=backwards)(4, 1), steps)

    def test_a_rule_that_no_bound_knows_is_not_accounted_for(self, registry):
        with pytest.raises(li.NoBoundApplies):
            li.account(run_of(made(PositionedRule)(3, 1)))


def test_a_rule_that_is_new_is_covered_too():
    """In a process that knew of the rule before it knew of any bound, all of the above holds."""
    words = [
        sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider",
        "-p", "tests.forwards_and_backwards", "-k", "forwards-and-backwards", __file__,
    ]  # fmt: skip
    root = Path(__file__).parent.parent
    ran = subprocess.run(words, capture_output=True, text=True, check=False, cwd=root)
    assert ran.returncode == 0, ran.stdout
    assert int(ran.stdout.split(" passed")[0].split()[-1]) >= 25
