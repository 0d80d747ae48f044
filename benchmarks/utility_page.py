"""The table and picture of docs/utility.md and benchmarks/utility_results.md, from results."""

import itertools
import math
from pathlib import Path

import numpy as np
from datasets import ADULT_NAMES, ADULT_NUMBERS
from utility import DATASETS, EPSILONS, METHODS, PASSES, key

ALL_RESULTS = Path(__file__).with_name("utility_results.md")
TITLES = {"mnist": "MNIST", "adult": "Adult", "imdb": "IMDb embeddings"}
EXPECTED = {  # planned beforehand, to be reached within 0.3, at 20 passes under replacement
    "mnist": (89.7, 90.5, 91.2, 91.6),
    "adult": (84.9, 85.2, 85.2, 85.2),
    "imdb": (77.9, 79.2, 79.8, 80.1),
}
OURS = {"replace": "ours, untuned", "zero-out": "ours, untuned (zero-out)"}
SHORT = {"replace": "an example replaced", "zero-out": "an example left out"}
COLOURS = {  # of Okabe and Ito
    "ours, untuned": "#000000",
    "fixed-size composition": "#D55E00",
    "output perturbation": "#0072B2",
    "diffprivlib": "#009E73",
    "objective perturbation": "#CC79A7",
}
MARKS = dict(zip(COLOURS, "osD^v", strict=True))


def write(results, page):
    """The picture beside the page, whose table docs/generate/tables.py writes, and all results."""
    picture(results, page.with_suffix(".png"))
    parts = [ALL.format(cuts=cuts())]
    for name, passes in itertools.product(DATASETS, PASSES):
        parts += table(results, name, passes)
    parts += settings(results)
    ALL_RESULTS.write_text(
        "\n".join([*parts, *counted(results)]).rstrip("\n") + "\n", encoding="utf-8"
    )


ALL = """# All results on accuracy

Test accuracy in per cent, mean ± standard deviation over the seeds, delta 1e-5. `python
benchmarks/utility.py --from-results` writes this file. `docs/utility.md` is the summary, and
`utility_notes.md` says how the results were obtained.

Rivals were tuned on the test set: over a grid, then from its best setting to neighbours, then the
six best over all seeds. DP-SGD (batches of a fixed size under replacement, Poisson batches under
zero-out) takes two matrix products a step and is calibrated by composition of privacy loss
distributions. Output perturbation is this library with all noise on release. diffprivlib's
objective perturbation has delta = 0, which is a stronger promise; *objective perturbation* has
Gaussian noise, accounted tightly (Redberg, Koskela and Wang 2023; proof in
`objective_perturbation.py`), for two classes.

All methods get the same rows, as unit vectors. {cuts} `fnlwgt` and `education` are left out. The
values of the seven text columns are those that occur in the public files.
"""


def best_of_each(results):
    """One row for each data set, number of passes and adjacency: ours, and the best tuned rival."""
    yield "| data | passes | adjacency | " + " | ".join(f"ε {e:g}" for e in EPSILONS) + " |"
    yield "|---|---:|---|" + "---:|" * len(EPSILONS)
    for name, passes, adjacency in itertools.product(DATASETS, PASSES, OURS):
        shown = []
        for epsilon in EPSILONS:
            ours = cell(results, name, passes, epsilon, OURS[adjacency], "default")
            theirs = tuned_rivals(results, adjacency, name, passes, epsilon)
            both = ours and theirs
            shown.append(f"{np.mean(ours):.2f} ({max(theirs):.2f})" if both else "")
        yield f"| {TITLES[name]} | {passes} | {adjacency} | " + " | ".join(shown) + " |"


def tuned_rivals(results, adjacency, name, passes, epsilon, *, iterative=False):
    """Mean accuracies of the tuned rivals; with `iterative` of those that go by passes."""
    return [
        np.mean(found)
        for method in rivals_of(adjacency)
        if METHODS[method].iterative or not iterative
        if (found := cell(results, name, passes, epsilon, method, "tuned"))
    ]


def cuts():
    """Where the numeric columns of Adult are cut, in a sentence."""
    many = sum(map(len, ADULT_NUMBERS.values()))
    named = "; ".join(
        f"{ADULT_NAMES[column]} at {', '.join(map(str, points))}"
        for column, points in ADULT_NUMBERS.items()
    )
    return (
        f"Adult's five numeric columns are one-hot encoded at\n{many} cut points, chosen by hand "
        f"from the meaning of the columns:\n{named}."
    )


def cell(results, name, passes, epsilon, method, kind):
    """The mean, or None; what does not go by passes is the same for all."""
    for given in (passes, PASSES[0]) if not METHODS[method].iterative else (passes,):
        found = results.get(key(name, given, epsilon, method), {}).get(kind)
        if found:
            return found
    return None


def rivals_of(adjacency):
    return [m for m, each in METHODS.items() if each.grid and each.adjacency == adjacency]


def cells():
    return itertools.product(DATASETS, PASSES, EPSILONS)


def counted(results):
    """How many cells meet each goal, and every cell that does not."""
    yield "## Goals set beforehand\n"
    for adjacency, mine in OURS.items():
        behind, defaults, total, total_defaults = [], [], 0, 0
        for name, passes, epsilon in cells():
            ours = cell(results, name, passes, epsilon, mine, "default")
            if ours is None:
                continue
            for kind, failures, slack in (("tuned", behind, 0.75), ("default", defaults, 0.0)):
                found = {
                    m: np.mean(c)
                    for m in rivals_of(adjacency)
                    if (c := cell(results, name, passes, epsilon, m, kind))
                }
                if not found:
                    continue
                total, total_defaults = total + (kind == "tuned"), total_defaults + (slack == 0.0)
                best = max(found, key=found.get)
                if np.mean(ours) < found[best] - slack:
                    failures.append(exception(name, passes, epsilon, ours, best, found[best]))
        what = SHORT[adjacency]
        yield line(f"{what}: within 0.75 of the best tuned rival", total, behind)
        yield line(f"{what}: ahead of every default", total_defaults, defaults)
    yield line(
        "ahead of tuned composition at 2 passes, epsilon 2 and 4", *against_composition(results)
    )
    yield line("the values planned for 20 passes reached within 0.3", *against_plan(results))
    yield ""


def result(results):
    """The result in two sentences."""
    gaps, like_for_like = leads(results), leads(results, iterative=True)
    return (
        f"**Without tuning, ours is more accurate than every rival tuned on the test set in "
        f"{sum(gaps > 0.0)} of {gaps.size} comparisons, and {gaps.mean():.2f} points better than "
        f"the best of them on average.** Where it is behind, it is at most "
        f"{up_to_cents(-gaps.min())} points behind ({up_to_cents(-like_for_like.min())} behind "
        f"rivals that make as many passes)."
    )


def leads(results, *, iterative=False):
    """Ours less the best tuned rival in each cell; perhaps only those that go by passes."""
    found = []
    for (adjacency, mine), (name, passes, epsilon) in itertools.product(OURS.items(), cells()):
        ours = cell(results, name, passes, epsilon, mine, "default")
        theirs = tuned_rivals(results, adjacency, name, passes, epsilon, iterative=iterative)
        if ours and theirs:
            found.append(np.mean(ours) - max(theirs))
    return np.array(found)


def up_to_cents(points):
    return f"{math.ceil(points * 100 - 1e-9) / 100:.2f}"


def against_composition(results):
    failures, total = [], 0
    for name, epsilon in itertools.product(DATASETS, EPSILONS[2:]):
        ours = cell(results, name, 2, epsilon, OURS["replace"], "default")
        theirs = cell(results, name, 2, epsilon, "fixed-size composition", "tuned")
        if ours and theirs:
            total += 1
            if np.mean(ours) <= np.mean(theirs):
                what = exception(name, 2, epsilon, ours, "composition", np.mean(theirs))
                failures.append(what)
    return total, failures


def against_plan(results):
    failures, total = [], 0
    for name in DATASETS:
        for epsilon, planned in zip(EPSILONS, EXPECTED[name], strict=True):
            ours = cell(results, name, 20, epsilon, OURS["replace"], "default")
            if ours:
                total += 1
                if np.mean(ours) < planned - 0.3:
                    failures.append(exception(name, 20, epsilon, ours, "planned", planned))
    return total, failures


def exception(name, passes, epsilon, ours, rival, theirs):
    return (
        f"{TITLES[name]}, {passes} passes, epsilon {epsilon:g}: {np.mean(ours):.2f} "
        f"against {theirs:.2f} ({rival})"
    )


def line(what, total, failures):
    but = f"; not in {'; '.join(failures)}" if failures else ""
    return f"- {what}: {total - len(failures)} of {total} comparisons{but}."


def table(results, name, passes):
    yield f"## {TITLES[name]}, {passes} passes\n"
    yield "| adjacency | method | " + " | ".join(f"ε {e:g}" for e in EPSILONS) + " |"
    yield "|---|---|" + "---|" * len(EPSILONS)
    for method, each in METHODS.items():
        for kind in ("default", "tuned") if each.grid else ("default",):
            found = [cell(results, name, passes, e, method, kind) for e in EPSILONS]
            if any(found):
                shown = [f"{np.mean(c):.2f} ± {np.std(c):.2f}" if c else "" for c in found]
                title = f"{method}, {kind}" if each.grid else f"**{method}**"
                yield f"| {each.adjacency} | {title} | " + " | ".join(shown) + " |"
    if passes == PASSES[0]:
        planned = " | ".join(f"{x:.1f}" for x in EXPECTED[name])
        yield f"| replace | *planned beforehand* | {planned} |"
    yield ""


def settings(results):
    yield "## The settings that rivals were given\n"
    yield "In italics: no larger, or no smaller, value was tried.\n"
    yield "| data, passes | method | " + " | ".join(f"ε {e:g}" for e in EPSILONS) + " |"
    yield "|---|---|" + "---|" * len(EPSILONS)
    for name, passes in itertools.product(DATASETS, PASSES):
        for method, each in METHODS.items():
            found = [results.get(key(name, passes, e, method), {}) for e in EPSILONS]
            if each.grid and any("setting" in f for f in found):
                shown = " | ".join(setting(f) for f in found)
                yield f"| {TITLES[name]}, {passes} | {method} | {shown} |"


def setting(found):
    if "setting" not in found:
        return ""
    values = [
        f"*{value:.3g}*" if name in found.get("beyond", ()) else f"{value:.3g}"
        for name, value in found["setting"].items()
    ]
    names = ", ".join(name.replace("_", " ") for name in found["setting"])
    return f"{names}: {', '.join(values)} (of {found['settings_tried']})"


def picture(results, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        len(PASSES), len(DATASETS), figsize=(12.5, 7.0), squeeze=False, layout="constrained"
    )
    for (i, passes), (j, name) in itertools.product(enumerate(PASSES), enumerate(DATASETS)):
        draw(axes[i, j], results, name, passes)
        if j == 0:
            axes[i, j].set_ylabel("test accuracy, %")
        if i == len(PASSES) - 1:
            axes[i, j].set_xlabel("epsilon (delta = 1e-5, an example replaced)")
    figure.suptitle("Ours as it comes, rivals tuned on the test set", x=0.01, ha="left")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw(axis, results, name, passes):
    axis.set_title(f"{TITLES[name]}, {passes} passes", loc="left", fontsize=10)
    ends, values = {}, []
    for method, colour in COLOURS.items():
        kind = "tuned" if METHODS[method].grid else "default"
        found = {
            e: c
            for e in EPSILONS
            if (c := cell(results, name, passes, e, method, kind)) is not None
        }
        if not found:
            continue
        means = [np.mean(c) for c in found.values()]
        wide = 2.2 if method in OURS.values() else 1.2
        axis.errorbar(
            list(found), means, [np.std(c) for c in found.values()],
            color=colour, marker=MARKS[method], markersize=5, linewidth=wide, elinewidth=0.8,
        )  # fmt: skip
        ends[method] = means[-1]
        if method != "diffprivlib":
            values += means
    axis.set_xscale("log")
    axis.set_xlim(0.45, 14.0)
    axis.set_xticks(EPSILONS, [f"{e:g}" for e in EPSILONS])
    axis.minorticks_off()
    axis.grid(axis="y", alpha=0.25)
    if not values:
        return
    low, high = min(values), max(values)
    axis.set_ylim(low - 0.25 * (high - low) - 0.3, high + 0.12 * (high - low) + 0.1)
    label(axis, ends)


def label(axis, ends):
    """Names beside the last points, moved apart where they would overlap."""
    bottom, top = axis.get_ylim()
    gap = 0.062 * (top - bottom)
    names = sorted(ends, key=ends.get)
    places = np.clip([ends[name] for name in names], bottom + gap, top - gap)
    for _ in range(200):
        for k in range(1, len(places)):
            if (short := gap - (places[k] - places[k - 1])) > 0:
                places[k - 1] -= short / 2
                places[k] += short / 2
    places += max(0.0, bottom + gap - places[0])
    for name, place in zip(names, places, strict=True):
        text = "ours" if name in OURS.values() else name.replace("fixed-size ", "")
        if ends[name] < bottom:
            text += f", {ends[name]:.0f} (below)"
        axis.annotate(
            text, (EPSILONS[-1], ends[name]), (4.7, place), color=COLOURS[name], va="center",
            fontweight="bold" if text == "ours" else "normal", annotation_clip=False,
        )  # fmt: skip
