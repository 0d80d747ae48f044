"""Defaults of flags that were left out, as a DP-SGD library has them, each stated to the user."""

import dataclasses

from lastiterate.cli.options.option_types import flag
from lastiterate.errors import InvalidType
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.description import Description
from lastiterate.run.training_run import usual_adjacency

_POISSON = (
    "assumed: --batches poisson (each step draws every example with probability "
    "batch-size/examples), as Opacus does by default. For a loader that "
    "shuffles say --batches shuffled-each-epoch."
)
_SHUFFLED = "assumed: --batches shuffled-once (a secret order, kept in every epoch)."
_ADJACENCY = {
    "zero-out": "assumed: --adjacency zero-out (one example is left out), as DP-SGD accountants "
    "do, whatever the batches. For one example replaced by another say --adjacency replace.",
    "replace": "assumed: --adjacency replace (one example becomes another), as --sensitivity is "
    "of two examples. For one that is left out say --adjacency zero-out, and its --sensitivity.",
}
_SHOWN = {  # as it is easiest to give
    ("batch_size", "sample_rate"): "--batch-size",
    ("epochs", "steps"): "--epochs (or --steps)",
    ("noise_multiplier", "noise_std"): "--noise-multiplier (or --noise-std)",
    ("clip_norm", "sensitivity", "lipschitz"): "--clip-norm (or --sensitivity)",
}


def filled_in(said: Description, *, seeks_noise: bool) -> Description:
    """The description with its defaults; a command that seeks the noise needs none to begin with.

    All that is missing is named at once.
    """
    filled = said
    if seeks_noise and said.noise_multiplier is None and said.noise_std is None:
        if said.in_units_of_a_clip and said.clip_norm is not None:
            filled = dataclasses.replace(said, noise_multiplier=1.0)
        else:
            filled = dataclasses.replace(said, noise_std=1.0)
    missing = [_SHOWN.get(words, flag(words[0])) for words in filled.missing()]
    if missing:
        must_be = f"described in full: add {_listed(missing)}, or name a run file"
        raise InvalidType("run", must_be=must_be, found="less")
    if said.batches is None:
        filled = dataclasses.replace(filled, batches=filled.rule().name)
    if said.adjacency is None:
        adjacency = usual_adjacency(sensitivity_stated=not filled.in_units_of_a_clip)
        filled = dataclasses.replace(filled, adjacency=adjacency)
    return filled


def assumptions(said: Description, filled: Description) -> list[str]:
    """Which of the defaults a reader must know; of a run that could be described by them."""
    stated = []
    if said.batches is None:
        stated += [_POISSON if filled.in_units_of_a_clip else _SHUFFLED]
    if said.adjacency is None and filled.adjacency is not None:
        stated += [_ADJACENCY[filled.adjacency]]
    if said.releases is None and (filled.in_units_of_a_clip or said.step_size is None):
        stated += _for_the_last_iterate(filled)
    return stated


_SMOOTHNESS = (
    "--smoothness (logistic regression on rows of norm at most R: R^2/4 plus the penalty, softmax: "
    "R^2/2 plus it; state weight decay as --regulariser)"
)


def _for_the_last_iterate(said: Description) -> list[str]:
    """The further flags that a bound for the last iterate alone would need."""
    rate = ["--step-size"] if said.step_size is None else []
    clip, lipschitz = said.clip_norm, said.lipschitz
    ways = {}
    if said.convex:
        missing = ways["convex losses"] = list(rate)
        missing += [_SMOOTHNESS] if said.smoothness is None else []
        if clip is not None and not (lipschitz is not None and lipschitz <= clip):
            missing.append("--lipschitz (a bound on gradient norms, at most --clip-norm)")
    rule = said.rule()
    if rule.resampling in (Resampling.NEVER, Resampling.ONCE) and rule.exact_size:
        more = ["--diameter"] if said.diameter is None else []
        ways["iterates projected onto a ball"] = rate + more
    if not all(ways.values()):
        return []
    wanted = "; or ".join(f"{_listed(missing)} for {what}" for what, missing in ways.items())
    return [
        "charged: every iterate. A bound for the last iterate alone may be lower; it needs "
        f"{wanted or 'convex losses, or --batches cyclic or shuffled-once'}. "
        "It holds for SGD, with --momentum or without; with Adam, charge every iterate."
    ]


def _listed(flags: list[str]) -> str:
    return f"{', '.join(flags[:-1])} and {flags[-1]}" if len(flags) > 1 else "".join(flags)
