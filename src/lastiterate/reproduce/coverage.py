r"""Every item of the five papers, where the library has it, and in which state.

An address is an id of the catalogue (`published/..`), an id of `lastiterate reproduce`, or an
importable name written `module:name`.  Tests check that each of them exists.

Formulas that are false as printed stand at the end, for the errata and nothing else.  Both print
the sampled Gaussian's divergence as :math:`D_\alpha(N(0) \| (1-q)N(0) + qN(1))`, which is the
smaller of the two directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from importlib import import_module

import numpy as np

from lastiterate.bounds.catalogue import APPROXIMATIONS, RECORDS
from lastiterate.errors import NumericalFailure
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.reproduce.papers import ITEMS, PAPERS

_BSA, _AT = "published/bok-su-altschuler", "published/altschuler-talwar"
_YS, _CL, _CYS = "published/ye-shokri", "published/chien-li", "published/chourasia-ye-shokri"
_CODE = "lastiterate.bounds.published"


class Availability(Enum):
    """Whether an item can be had from the library."""

    WORKS = "works"
    PARTIAL = "partial"
    MISSING = "missing"
    NO_NUMBER = "no number"  # a proof device, a remark or a sketch
    NOT_AT_HAND = "not at hand"  # for want of a text or of data


@dataclass(frozen=True)
class CoverageItem:
    """One item of a paper."""

    paper: str
    item: str
    where: tuple[str, ...]
    note: str = ""
    state: Availability = Availability.WORKS

    def missing(self) -> list[str]:
        """The addresses that do not exist."""
        return [address for address in self.where if not _exists(address)]


def _exists(address: str) -> bool:
    if ":" in address:
        module, _, name = address.partition(":")
        found = import_module(module)
        for part in name.split("."):
            found = getattr(found, part, None)  # type: ignore[assignment]  # any object
        return found is not None
    return any(address in known for known in (RECORDS, LOWER_BOUNDS, APPROXIMATIONS, ITEMS))


def _items_of(
    paper: str, *items: tuple[str, tuple[str, ...] | str, str] | CoverageItem
) -> list[CoverageItem]:
    return [
        one
        if isinstance(one, CoverageItem)
        else CoverageItem(paper, one[0], (one[1],) if isinstance(one[1], str) else one[1], one[2])
        for one in items
    ]


def _no_number(paper: str, item: str, note: str) -> CoverageItem:
    return CoverageItem(paper, item, (), note, Availability.NO_NUMBER)


COVERAGE: tuple[CoverageItem, ...] = (
    *_items_of(
        "bsa",
        ("Lemmas 2.5, 2.7, 3.1, A.2", "lastiterate:compose", ""),
        ("Theorem 3.3 = C.3, Lemmas 3.2, C.4, C.6, C.8, C.10, C.11", "lastiterate:optimal_shifts",
         ""),
        ("Theorem 4.1", f"{_BSA}/full-batch-composition", ""),
        ("Theorem 4.2 = C.5", f"{_BSA}/full-batch", ""),
        ("Theorems 4.3, C.7", (f"{_BSA}/full-batch-bounded", f"{_BSA}/full-batch-bounded-from"),
         ""),
        ("Theorem 4.4", f"{_BSA}/cyclic-composition", ""),
        ("Theorem 4.5", f"{_BSA}/cyclic", ""),
        ("Theorem 4.6", f"{_BSA}/cyclic-bounded", ""),
        ("Definition 4.7, Theorem 4.8, Proposition D.4", f"{_BSA}/sampled-composition", ""),
        ("Theorems 4.9, C.13, footnote 10",
         (f"{_BSA}/sampled-strongly-convex", f"{_BSA}/sampled-shifts"),
         "C.13 with one fraction for all shifts; any choice is valid"),
        ("Theorem 4.10, footnote 11", f"{_BSA}/sampled-bounded-domain", ""),
        ("Lemma A.5, Propositions C.14, C.15",
         (f"{_BSA}/sampled-composition-estimate", f"{_BSA}/sampled-estimate",
          f"{_BSA}/sampled-bounded-estimate"), "estimates"),
        ("Theorem C.16", f"{_BSA}/bounded-lower", "by the law of the walk"),
        ("Theorem C.17", f"{_BSA}/cyclic-lower", ""),
        ("Proposition 5.1, Corollaries 5.2, 5.4, section D.4", "lastiterate:langevin", ""),
        ("Conversions A.1, A.3, A.4",
         ("lastiterate:GaussianProfile", "lastiterate.profile.renyi:RenyiProfile"), ""),
        _no_number("bsa", "Lemmas A.6 to A.11, 2.3, appendix B", "used in proofs only"),
        _no_number("bsa", "Lemma C.12, conjecture in footnote 9", "inside Theorem 4.9; unproved"),
        ("Constrained and strongly convex: said to be similar", "fixed-order/convex", ""),
        ("Algorithms (1), Langevin sampling",
         ("lastiterate.linear_model:PrivateLogisticRegression",
          "lastiterate.reproduce.ye_shokri:weights_by_epoch", "lastiterate:langevin"), ""),
        ("Tables 1, 3, 4, 7, 8, 9", tuple(f"bsa-table-{k}" for k in (1, 3, 4, 7, 8, 9)), ""),
        ("Tables 10, 11, 12", tuple(f"bsa-table-{k}" for k in (10, 11, 12)),
         "E* as their code has it, and as it should be"),
        ("Table 2", "bsa-table-2", "needs MNIST"),
        ("Tables 5, 6", ("bsa-table-5", "bsa-table-6"), "needs MNIST"),
        ("Figure 1", "bsa-figure-1", ""),
        ("Figure 2", "bsa-figure-2", ""),
        _no_number("bsa", "Figures 3, 5", "sketches"),
        ("Figure 4", "bsa-figure-4", ""),
        ("Figures 6, 7, 8, 9", tuple(f"bsa-figure-{k}" for k in (6, 7, 8, 9)), ""),
        ("Figure 10", "bsa-figure-10", "estimates"),
    ),
    *_items_of(
        "at",
        ("Lemmas 2.5 to 2.9, 2.15, 2.16, 5.7, Definition 2.13",
         ("lastiterate:compose", "lastiterate:optimal_shifts"), ""),
        ("Lemma 2.11", f"{_CODE}.sampled_gaussian:sampled_gaussian",
         "the larger direction; exact at whole orders, by chords between"),
        ("Lemma 2.12, largest order",
         (f"{_CODE}.sampled_gaussian:quadratic_bound", f"{_CODE}.sampled_gaussian:largest_order"),
         ""),
        ("Proposition 2.17", f"{_AT}/iteration", ""),
        ("Proposition 3.2", f"{_AT}/bounded", ""),
        ("Proposition 5.6", f"{_AT}/bounded-strongly-convex", ""),
        ("Theorems 3.1, 1.3 through (3.6)", f"{_AT}/sampled-bounded", "as published"),
        ("Theorem 5.1 through (5.3), Remark 5.3", f"{_AT}/sampled-strongly-convex",
         "as published"),
        ("Footnote 10", f"{_AT}/sampled-bounded", "any batch size"),
        ("Theorem 4.1",
         (f"{_AT}/bounded-lower", f"{_CODE}.altschuler_talwar:renyi_rate"),
         "the rate as printed, and as far as it is proved"),
        ("Remark 1.4", "lastiterate.profile.renyi:RenyiProfile.epsilon", ""),
        CoverageItem("at", "Remark 5.2", ("random-order/sampled",), "not quantified in print",
                Availability.NO_NUMBER),
        ("Section 1.2: smoothing, L = MD, a search over norm bounds",
         (f"{_CODE}.altschuler_talwar:gaussian_smoothed",
          f"{_CODE}.altschuler_talwar:moreau_smoothed",
          f"{_CODE}.altschuler_talwar:lipschitz_on_ball",
          "lastiterate.profile.selection:SelectedProfile"), "the search is private selection"),
        ("Section 6: clipped linear models", "lastiterate.train.objectives:Softmax",
         "by clipping that keeps losses convex"),
        ("Figure 1", "at-figure-1", "a sketch, drawn with numbers"),
    ),
    *_items_of(
        "ys",
        ("Theorem 2.1", f"{_YS}/naive", ""),
        _no_number("ys", "Lemmas 3.1, 3.2", "the shifts imply what follows from them"),
        ("Theorem 3.3", f"{_YS}/fixed-order", "by position, too"),
        ("Lemma 4.1, Theorem 4.2", f"{_YS}/shuffled", ""),
        ("Theorem 4.3", f"{_YS}/sampled", ""),
        ("Proposition 5.1", "lastiterate.train.objectives:Softmax.loss", ""),
        ("Proposition 5.2", "lastiterate.reproduce.ye_shokri:residuals",
         "false for three classes; see the errata"),
        ("Corollary 5.3", f"{_YS}/clipped-logistic", "as published"),
        ("Corollary 5.3: epsilon of normalisation",
         f"{_CODE}.ye_shokri:normalisation", ""),
        ("Algorithms 1, 2",
         ("ys-algorithm-2", "lastiterate.reproduce.ye_shokri:weights_by_epoch"),
         "on your features; not certified"),
        ("Figure 1", "ys-figure-1", ""),
        ("Figure 2", "ys-figure-2", ""),
        ("Appendices D.4, D.7: convex losses, full batches",
         (f"{_YS}/full-batch", f"{_AT}/iteration"),
         "inferred: the text is not at hand"),
        CoverageItem("ys", "Tables of accuracies", ("ys-privacy", "ys-algorithm-2"),
                "their privacy is computed; the features they were trained on are not at hand",
                Availability.NOT_AT_HAND),
    ),
    *_items_of(
        "cl",
        ("Theorem 3.1", f"{_CL}/smooth", ""),
        ("Lemmas 3.2 to 3.5, 3.8 to 3.10, A.2", f"{_CODE}.chien_li:forward_distances",
         ""),
        ("Theorem 3.7", f"{_CL}/hoelder", ""),
        ("Theorem 3.12", f"{_CL}/sampled", "as published"),
        ("Theorem 3.12 for convex losses, left to the reader", f"{_CL}/sampled", "as published"),
        ("Theorem A.1", f"{_CL}/cyclic", ""),
        ("Corollary A.3", f"{_CL}/shuffled", ""),
        ("Algorithm of A.2, reshuffled every epoch",
         ("random-order/shuffled", "lastiterate:ShuffledEachEpoch"), ""),
        ("Zero-out adjacency", "lastiterate:TrainingRun", 'adjacency="zero-out"'),
        ("Figure 1(a)", "cl-figure-1", ""),
        ("Figure 1(b)", "cl-figure-1", "with a curve that print does not have"),
        ("Figure 2(a)", "cl-figure-2", "estimated constants"),
        _no_number("cl", "Table 1, sections A.14, A.15", "assumptions compared; examples"),
    ),
    *_items_of(
        "cys",
        ("Theorem 1, composition", f"{_CYS}/linear", ""),
        ("Theorem 2 for any log-Sobolev constant",
         f"{_CODE}.chourasia_ye_shokri:log_sobolev", ""),
        ("(66), any balance", f"{_CYS}/balanced", ""),
        ("Corollary 1, Lemma 5", f"{_CYS}/strongly-convex", ""),
        ("Corollary 2", f"{_CYS}/squared-loss", ""),
        ("Theorem 3", f"{_CYS}/squared-lower", ""),
        ("Lemma 6, Theorem 4 (72)", "lastiterate:plan", ""),
        ("Theorem 4 (71), Renyi target",
         f"{_CODE}.chourasia_ye_shokri:plan_for_renyi", ""),
        _no_number("cys", "Lemmas 1 to 4, 7 to 9", "used in proofs only"),
        ("Theorems 6, 7", "lastiterate.profile.renyi:RenyiProfile", ""),
        ("Noisy gradient descent, Figure 2", "cys-figure-2", ""),
        CoverageItem("cys", "Main text: sections 1 to 6, its figures and tables", (),
                "only the appendix is at hand", Availability.NOT_AT_HAND),
    ),
)  # fmt: skip


def coverage_text() -> str:
    """All items by paper: the state and the item, then where it is and a note."""
    lines: list[str] = []
    for key in dict.fromkeys(one.paper for one in COVERAGE):
        lines += ["", PAPERS[key]]
        for one in COVERAGE:
            if one.paper == key:
                lines.append(f"  {one.state.value:12s}{one.item}")
                lines += [f"{'':14s}{address}" for address in one.where]
                lines += [f"{'':14s}({one.note})"] if one.note else []
    return "\n".join([*lines, "", summary()]).lstrip("\n")


def summary() -> str:
    """The number of items in each state."""
    counts = {state: sum(one.state is state for one in COVERAGE) for state in Availability}
    listed = ", ".join(f"{state.value} {count}" for state, count in counts.items())
    return f"{len(COVERAGE)} items: {listed}"


def smaller_direction(order: float, q: float, noise: float) -> float:
    """The divergence S_alpha as printed (Altschuler and Talwar 2.10, Chien and Li 3.11)."""
    return _divergence(order, q, noise, mixture_first=False)


def larger_direction(order: float, q: float, noise: float) -> float:
    """The other direction, which a one-step run attains."""
    return _divergence(order, q, noise, mixture_first=True)


def _divergence(order: float, q: float, noise: float, *, mixture_first: bool) -> float:
    reach = 1.0 + order + 14.0 * noise * math.sqrt(1.0 + order)
    x, step = np.linspace(-reach, reach, 200_001, retstep=True)
    zero = -0.5 * (x / noise) ** 2
    one = -0.5 * ((x - 1.0) / noise) ** 2
    mixed = np.logaddexp(math.log1p(-q) + zero, math.log(q) + one)
    p, r = (mixed, zero) if mixture_first else (zero, mixed)
    logs = order * p + (1.0 - order) * r
    top = float(logs.max())
    total = top + math.log(float(np.exp(logs - top).sum() * step))
    value = (total - math.log(noise * math.sqrt(2.0 * math.pi))) / (order - 1.0)
    if not math.isfinite(value):
        raise NumericalFailure(f"no divergence of order {order}, q = {q}, noise {noise}")
    return value


def altschuler_talwar_3_6(
    order: float, *, T: int, D: float, L: float, b: int, n: int, eta: float, sigma: float
) -> float:
    """The value of (3.6), which is false, the least over tau and the split of the noise."""
    best = math.inf
    for share in 1.0 / (1.0 + np.exp(-np.linspace(-8.0, 8.0, 65))):
        one = smaller_direction(order, b / n, b * sigma * math.sqrt(share) / (2.0 * L))
        R = np.arange(1, T + 1)
        rest = order * D * D / (2.0 * (eta * sigma) ** 2 * (1.0 - share) * R)
        best = min(best, float(np.min(R * one + rest)))
    return best


def chien_li_3_12_one_step(order: float, *, q: float, shift: float) -> float:
    """The value of (19) at T = 1, which is false; shift = 2 eta K/(b sigma)."""
    return smaller_direction(order, q, 1.0 / shift)


def ye_shokri_footnote_4(order: float, divergences: np.ndarray) -> float:
    """The sum epsilon_1 + log mean e^{(alpha-1)(epsilon_j - epsilon_1)}: it lacks 1/(alpha - 1)."""
    top = float(divergences.max())
    return top + math.log(float(np.mean(np.exp((order - 1.0) * (divergences - top)))))
