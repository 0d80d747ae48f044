"""Nothing that is derived from a report promises more than it: every derivation, every kind."""

from __future__ import annotations

import html
import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import NeighboringRelation

import lastiterate as li
from lastiterate.cli import main
from lastiterate.dp_accounting import LastIterateAccountant
from lastiterate.errors import InvalidParameter
from lastiterate.explore.answers import review_certificate
from lastiterate.profile import GaussianProfile
from lastiterate.report import html as report_html
from tests.slow import slow_if

from .kinds import KINDS, SLOW_KINDS, Kind

DELTAS = (1e-5, 1e-7)
ROUNDING = 1e-9
NUMBER = r"([0-9.]+(?:e-?[0-9]+)?|inf)"


@dataclass
class Claimed:
    """(delta, epsilon) pairs, printed or not, and the words they come with, which may be short."""

    pairs: list[tuple[float, float]]
    text: str | None = None
    printed: bool = False
    in_short: bool = False
    unsaid: tuple[str, ...] = field(default=())


def of_curve(epsilon: Callable[[float], float]) -> Claimed:
    return Claimed([(delta, epsilon(delta)) for delta in DELTAS])


def of_text(text: str, **more) -> Claimed:
    found = re.findall(rf"epsilon = {NUMBER} (?:at|and) delta = {NUMBER}", text)
    assert found, text
    return Claimed(
        [(float(d), float(e)) for e, d in found], " ".join(text.split()), printed=True, **more
    )


def event(kind: Kind) -> Claimed:
    relation = {"replace": "REPLACE_ONE", "zero-out": "REPLACE_SPECIAL"}[kind.report.run.adjacency]
    accountant = LastIterateAccountant(NeighboringRelation[relation])
    accountant.compose(kind.report.to_dp_event())
    return of_curve(accountant.get_epsilon)


def losses(kind: Kind) -> Claimed:
    return of_curve(kind.report.to_pld(discretization=1e-3).get_epsilon_for_delta)


def gaussian(kind: Kind) -> Claimed:
    return of_curve(GaussianProfile(kind.report.gdp()).epsilon)


def composed(kind: Kind) -> Claimed:
    return of_curve(kind.report.compose(GaussianProfile(1e-3)).epsilon)


def charged(release, unit: li.TrainingRun, **changes) -> Claimed:
    """In a ledger of the report's unit, unless said otherwise."""
    said = {"adjacency": unit.adjacency, "examples_per_person": unit.examples_per_person}
    with tempfile.TemporaryDirectory() as folder:
        book = li.Ledger(
            Path(folder) / "a.ledger", epsilon=500.0, delta=DELTAS[0], **said | changes
        )
        entry = book.add(release)
        total = book.spent().epsilon(DELTAS[0])
        text = str(book)
    pairs = [(DELTAS[0], total), (DELTAS[0], entry["alone"])]
    return Claimed(pairs, text if unit.examples_per_person > 1 else None)


def ledger(kind: Kind) -> Claimed:
    if kind.report.run.examples_per_person > 1:
        with pytest.raises(InvalidParameter, match="must be"):
            charged(kind.report, kind.report.run, examples_per_person=1)
    claimed = charged(kind.report, kind.report.run)
    # What was charged is the release itself; its own words come with that.
    claimed.unsaid = tuple(one for one in kind.said if "person" not in one)
    return claimed


def ledger_of_more_examples(kind: Kind) -> Claimed:
    return Claimed(charged(kind.report, kind.report.run, examples_per_person=4).pairs)


def ledger_by_certificate(kind: Kind) -> Claimed:
    return Claimed(charged(_certificate(kind), kind.report.run).pairs)


def statement(kind: Kind) -> Claimed:
    return of_text(kind.report.statement())


def other_statement(kind: Kind) -> Claimed:
    return of_text(kind.report.statement(delta=DELTAS[1], format="markdown"))


def model_card(kind: Kind) -> Claimed:
    return of_text(kind.report.statement(format="model-card"))


def of_users(kind: Kind) -> Claimed:
    text = kind.report.statement(max_examples_per_user=2 * kind.report.run.examples_per_person)
    (found,) = re.findall(rf"gives epsilon = {NUMBER}", text)
    return Claimed([(DELTAS[0], float(found))])


def text(kind: Kind) -> Claimed:
    return of_text(str(kind.report))


def short_text(kind: Kind) -> Claimed:
    said = repr(kind.report)
    (found,) = re.findall(rf"epsilon={NUMBER} at delta={NUMBER}", said)
    return Claimed([(float(found[1]), float(found[0]))], said, printed=True, in_short=True)


def record(kind: Kind) -> Claimed:
    said = kind.report.to_json()
    told = json.loads(said)
    numbers = [told["epsilon"], *(one["epsilon"] for one in told["bounds"] if one["used"])]
    pairs = [(told["delta"], float(one)) for one in numbers]
    return Claimed(pairs, " ".join(said.split()))


def page(kind: Kind) -> Claimed:
    with pytest.MonkeyPatch.context() as without:  # pictures, which take most of the time
        without.setattr(report_html, "_picture", lambda name, draw, caption: [caption])
        said = html.unescape(kind.report.to_html())
    plain = re.sub(r"<[^>]*>", "", said).replace("ε", "epsilon").replace("δ", "delta")
    return of_text(plain)


def card(kind: Kind) -> Claimed:
    return of_text(html.unescape(re.sub(r"<[^>]*>", " ", kind.report._repr_html_())))


def _certificate(kind: Kind) -> str:
    certificate = kind.made()[1]
    if certificate is None:
        pytest.skip("a run that was only described has no certificate")
    return certificate


def explored(kind: Kind) -> Claimed:
    told = review_certificate({"certificate": _certificate(kind)})
    said = " ".join([told["statement"], *told["assumptions"], told["release"], *told["reasons"]])
    claimed = of_text(said)
    claimed.pairs.append((told["delta"], float(told["epsilon_text"])))
    if kind.report.other_releases or kind.report.of_more_than_the_run:
        assert told["words"] is None or "alone" in told["words_leave_out"]
    return claimed


def command(kind: Kind, capsys) -> Claimed:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "certificate.json"
        path.write_text(_certificate(kind))
        assert main(["verify", str(path), "--allow-seeded", "--allow-fitted"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (holds,) = (one for one in lines if one.startswith("holds"))
    return of_text(holds)


DERIVATIONS: dict[str, Callable[[Kind], Claimed]] = {
    "event": event, "losses": losses, "gaussian": gaussian, "composed": composed, "ledger": ledger,
    "ledger of more examples": ledger_of_more_examples,
    "ledger by certificate": ledger_by_certificate, "statement": statement,
    "other statement": other_statement, "model card": model_card, "of users": of_users,
    "text": text, "short text": short_text, "record": record, "page": page, "card": card,
    "explored": explored,
}  # fmt: skip
# What cannot be said is refused, and nothing else is.
REFUSED: dict[str, Callable[[Kind], bool]] = {
    "event": lambda kind: (
        kind.report.rounding is not None
        or (
            (kind.report.run.adjacency == "replace" or not kind.report.gdp() < np.inf)
            and bool(kind.report.other_releases or kind.report.of_more_than_the_run)
        )
    ),
    "ledger": lambda kind: kind.report.of_more_than_the_run or kind.report.seeded,
    "ledger of more examples": lambda kind: kind.report.of_more_than_the_run or kind.report.seeded,
    "ledger by certificate": lambda kind: kind.report.followed is not None or kind.report.seeded,
}


@pytest.mark.parametrize("name", slow_if(SLOW_KINDS.__contains__, KINDS))
@pytest.mark.parametrize("derivation", DERIVATIONS)
def test_says_no_more_than_the_report(name, derivation):
    kind = KINDS[name]
    if REFUSED.get(derivation, lambda _: False)(kind):
        with pytest.raises(InvalidParameter, match="must be"):
            DERIVATIONS[derivation](kind)
        return
    claimed = DERIVATIONS[derivation](kind)
    assert claimed.pairs
    for delta, epsilon in claimed.pairs:
        truth = kind.report.epsilon(delta)
        assert epsilon >= truth * (1.0 if claimed.printed else 1.0 - ROUNDING)
    if claimed.text is None:
        return
    for words in kind.in_short if claimed.in_short else kind.said:
        if words not in claimed.unsaid:
            assert any(one in claimed.text for one in words.split("|")), words


@pytest.mark.parametrize("name", slow_if(SLOW_KINDS.__contains__, KINDS))
def test_the_command_says_no_more(name, capsys):
    for delta, epsilon in command(KINDS[name], capsys).pairs:
        assert epsilon >= KINDS[name].report.epsilon(delta) * (1.0 - ROUNDING)
