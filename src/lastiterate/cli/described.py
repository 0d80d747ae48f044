"""A run described by flags, or by a TOML or JSON file."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from lastiterate.errors import InvalidParameter
from lastiterate.run import batches as rules
from lastiterate.run.domain import Ball, Unbounded
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

_Value = TypeVar("_Value")
_RULES: dict[str, Callable[..., rules.Batches]] = {
    "full": rules.FullBatch,
    "cyclic": rules.Cyclic,
    "shuffled-once": rules.ShuffledOnce,
    "shuffled-each-epoch": rules.ShuffledEachEpoch,
    "sampled": rules.SampledWithoutReplacement,
    "poisson": rules.PoissonSampled,
}

RunFile = Annotated[
    Path | None, typer.Argument(help="a .toml or .json file, as run.to_toml() writes it")
]
Examples = Annotated[int | None, typer.Option(help="how many examples there are")]
BatchSize = Annotated[int | None, typer.Option(help="examples in a batch")]
Rule = Annotated[str, typer.Option("--batches", help=f"one of {', '.join(_RULES)}")]
Epochs = Annotated[float | None, typer.Option(help="passes over the examples (or --steps)")]
Steps = Annotated[int | None, typer.Option(help="gradient steps (or --epochs)")]
StepSize = Annotated[float | None, typer.Option(help="the learning rate")]
NoiseStd = Annotated[float | None, typer.Option(help="noise on the averaged gradient")]
NoiseMultiplier = Annotated[
    float | None, typer.Option(help="noise on the summed gradient, in units of the clip")
]
ClipNorm = Annotated[
    float | None, typer.Option(help="the norm to which each example's gradient is clipped")
]
Sensitivity = Annotated[
    float | None, typer.Option(help="the largest difference of two examples' gradients")
]
Smoothness = Annotated[
    float | None, typer.Option(help="of every example's loss, regulariser included")
]
StrongConvexity = Annotated[float, typer.Option(help="of every example's loss")]
Regulariser = Annotated[float, typer.Option(help="curvature of a penalty added in every step")]
Lipschitz = Annotated[
    float | None, typer.Option(help="a bound on every gradient's norm, so that no clip is active")
]
NonConvex = Annotated[bool, typer.Option("--non-convex", help="losses may be non-convex")]
Diameter = Annotated[float | None, typer.Option(help="of a ball that iterates are projected onto")]
ReleaseNoise = Annotated[
    float, typer.Option("--release-noise-std", help="noise added once, to the published model")
]
Adjacency = Annotated[str, typer.Option(help="replace or zero-out")]
Releases = Annotated[
    str, typer.Option(help="last-iterate, last-iterate-and-order or every-iterate")
]


def read_run(path: Path) -> TrainingRun:
    """The run that a file describes."""
    if path.suffix not in (".toml", ".json"):
        raise InvalidParameter("run", str(path), must_be="a file that ends in .toml or .json")
    text = path.read_text(encoding="utf-8")
    return (TrainingRun.from_toml if path.suffix == ".toml" else TrainingRun.from_json)(text)


def run_from_flags(
    run: RunFile = None,
    examples: Examples = None,
    batch_size: BatchSize = None,
    batches: Rule = "shuffled-once",
    epochs: Epochs = None,
    steps: Steps = None,
    step_size: StepSize = None,
    noise_std: NoiseStd = None,
    noise_multiplier: NoiseMultiplier = None,
    clip_norm: ClipNorm = None,
    sensitivity: Sensitivity = None,
    smoothness: Smoothness = None,
    strong_convexity: StrongConvexity = 0.0,
    regulariser: Regulariser = 0.0,
    lipschitz: Lipschitz = None,
    non_convex: NonConvex = False,
    diameter: Diameter = None,
    release_noise_std: ReleaseNoise = 0.0,
    adjacency: Adjacency = "replace",
    releases: Releases = "last-iterate",
) -> TrainingRun:
    """The run of the file, or else of the flags."""
    if run is not None:
        return read_run(run)
    rule = _rule(batches, examples, batch_size)
    common: dict[str, Any] = {
        "loss": Loss(
            smoothness=smoothness,
            strong_convexity=strong_convexity,
            convex=not non_convex,
            lipschitz=lipschitz,
            regulariser=regulariser,
        ),
        "batches": rule,
        "steps": _steps(steps, epochs, rule),
        "step_size": _given("step-size", step_size),
        "release_noise_std": release_noise_std,
        "domain": Unbounded() if diameter is None else Ball(diameter),
        "adjacency": adjacency,
        "releases": releases,
    }
    if noise_multiplier is not None:
        clip = _given("clip-norm", clip_norm)
        return TrainingRun.from_dp_sgd(clip_norm=clip, noise_multiplier=noise_multiplier, **common)
    return TrainingRun(
        sensitivity=_given("sensitivity", sensitivity),
        noise_std=_given("noise-std", noise_std),
        clip_norm=clip_norm,
        **common,
    )


def takes_run(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command that takes a run, first, the flags that describe one instead."""
    flags = inspect.signature(run_from_flags).parameters
    own = dict(list(inspect.signature(command).parameters.items())[1:])

    @functools.wraps(command)
    def with_flags(**values: Any) -> None:
        described = run_from_flags(**{name: values.pop(name) for name in flags})
        command(described, **values)

    merged = {**flags, **own}
    with_flags.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # read by inspect
        [one.replace(kind=one.KEYWORD_ONLY) for one in merged.values()]
    )
    with_flags.__annotations__ = {name: one.annotation for name, one in merged.items()}
    del with_flags.__wrapped__
    return with_flags


def _rule(rule: str, examples: int | None, batch_size: int | None) -> rules.Batches:
    if rule not in _RULES:
        raise InvalidParameter("batches", rule, must_be=f"one of {', '.join(_RULES)}")
    count, kind = _given("examples", examples), _RULES[rule]
    if kind is rules.FullBatch:
        return rules.FullBatch(count)
    return kind(count, _given("batch-size", batch_size))


def _steps(steps: int | None, epochs: float | None, batches: rules.Batches) -> int:
    if steps is not None:
        return steps
    passes = _given("steps", epochs)
    if not 0.0 < passes < 1e12:
        raise InvalidParameter("epochs", passes, must_be="in (0, 1e12)")
    return max(1, round(passes * batches.batches_per_epoch))


def _given(name: str, value: _Value | None) -> _Value:
    if value is None:
        raise InvalidParameter(name, None, must_be=f"given: --{name}, or a run file instead")
    return value
