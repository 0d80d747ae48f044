"""Defaults of flags that were left out, as a DP-SGD library has them, each stated to the user."""

from typing import Any

from lastiterate.run.batches import RULES, Drawn

_POISSON = (
    "assumed: --batches poisson (each step draws every example with probability "
    "batch-size/examples), as Opacus does by default. For a loader that "
    "shuffles say --batches shuffled-each-epoch."
)
_ZERO_OUT = (
    "assumed: --adjacency zero-out (one example is left out), as DP-SGD accountants "
    "do. For one example replaced by another say --adjacency replace."
)


def filled_in(said: dict[str, Any], *, seeks_noise: bool) -> tuple[dict[str, Any], list[str]]:
    """The flags with their defaults, and which of these a reader must know.

    A command that seeks the noise needs none to begin with.
    """
    if said["run"] is not None:
        return said, []
    filled, stated = dict(said), []
    if seeks_noise and said["noise_multiplier"] is None and said["noise_std"] is None:
        clipped = said["clip_norm"] is not None and said["sensitivity"] is None
        filled["noise_multiplier" if clipped else "noise_std"] = 1.0
    dp_sgd = filled["noise_multiplier"] is not None
    if said["batches"] is None:
        filled["batches"] = "poisson" if dp_sgd else "shuffled-once"
        stated += [_POISSON] if dp_sgd else []
    if said["adjacency"] is None:
        removes = dp_sgd and filled["batches"] == "poisson"
        filled["adjacency"] = "zero-out" if removes else "replace"
        stated += [_ZERO_OUT] if removes else []
    if said["releases"] is None:
        filled["releases"] = "last-iterate"
        if said["step_size"] is None:
            # Composition does not depend on the step size, and nothing else may be used.
            filled |= {"releases": "every-iterate", "step_size": 1.0}
        if dp_sgd or said["step_size"] is None:
            stated += _for_the_last_iterate(filled, said["step_size"])
    return filled, stated


def _for_the_last_iterate(flags: dict[str, Any], step_size: float | None) -> list[str]:
    """Which flags a bound for the last iterate alone would need besides."""
    rate = ["--step-size"] if step_size is None else []
    clip, lipschitz = flags["clip_norm"], flags["lipschitz"]
    ways = {}
    if not flags["non_convex"]:
        missing = ways["convex losses"] = list(rate)
        missing += ["--smoothness"] if flags["smoothness"] is None else []
        if clip is not None and not (lipschitz is not None and lipschitz <= clip):
            missing.append("--lipschitz (a bound on gradient norms, at most --clip-norm)")
    rule = RULES.get(flags["batches"])
    if rule is not None and rule.drawn in (Drawn.NEVER, Drawn.ONCE) and rule.exact_size:
        more = ["--diameter"] if flags["diameter"] is None else []
        ways["iterates projected onto a ball"] = rate + more
    if not all(ways.values()):
        return []
    wanted = "; or ".join(f"{_listed(missing)} for {what}" for what, missing in ways.items())
    return [
        "charged: every iterate. The last iterate alone may cost less; a bound for it needs "
        f"{wanted or 'convex losses, or --batches cyclic or shuffled-once'}. "
        "It is of plain steps only: with momentum or Adam, charge every iterate."
    ]


def _listed(flags: list[str]) -> str:
    return f"{', '.join(flags[:-1])} and {flags[-1]}" if len(flags) > 1 else "".join(flags)
