"""A run described by flags, by a TOML or JSON file, or by a file that flags change."""

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from lastiterate._files import write_whole
from lastiterate.cli import run_file
from lastiterate.cli.options.dp_sgd_defaults import assumptions, filled_in
from lastiterate.cli.options.option_types import among, flag, whole_number
from lastiterate.errors import InvalidParameter
from lastiterate.run.description import ALTERNATIVES, NAMES, Description
from lastiterate.run.training_run import ADD_REMOVE, ADJACENCIES, RELEASES, TrainingRun

RunFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="a run in a .toml or .json file, as --save and account --json write it; "
        "options override the file",
    ),
]
Examples = Annotated[
    int | None,
    typer.Option(parser=whole_number, metavar="<int>", help="number of training examples"),
]
BatchSize = Annotated[
    int | None, typer.Option(parser=whole_number, metavar="<int>", help="examples per batch")
]
SampleRate = Annotated[
    float | None, typer.Option(help="batch-size/examples (instead of --batch-size)")
]
Rule = Annotated[
    str | None,
    typer.Option(
        "--batches",
        autocompletion=among(NAMES),
        help=f"one of {', '.join(NAMES)} [default: shuffled-once with --sensitivity, else poisson]",
    ),
]
Epochs = Annotated[
    float | None,
    typer.Option(help="passes over the examples, each of examples/batch-size steps (or --steps)"),
]
Steps = Annotated[
    int | None,
    typer.Option(parser=whole_number, metavar="<int>", help="gradient steps (or --epochs)"),
]
StepSize = Annotated[
    float | None,
    typer.Option(
        "--step-size",
        "--lr",
        help="learning rate of SGD; without it, every iterate is charged",
    ),
]
NoiseStd = Annotated[
    float | None, typer.Option(help="standard deviation of the noise on the averaged gradient")
]
NoiseMultiplier = Annotated[
    float | None, typer.Option(help="noise on the summed gradient over --clip-norm, as in DP-SGD")
]
ClipNorm = Annotated[
    float | None, typer.Option(help="the norm to which each example's gradient is clipped")
]
Sensitivity = Annotated[
    float | None,
    typer.Option(
        help="largest distance between the gradients of two examples (with --adjacency zero-out, "
        "largest gradient norm) [default: from --clip-norm]"
    ),
]
Smoothness = Annotated[
    float | None, typer.Option(help="smoothness of every example's loss, regulariser included")
]
StrongConvexity = Annotated[float, typer.Option(help="strong convexity of every example's loss")]
Regulariser = Annotated[float, typer.Option(help="curvature of a penalty added in every step")]
Lipschitz = Annotated[
    float | None,
    typer.Option(help="bound on the norm of every gradient, so that clipping is never active"),
]
Outputs = Annotated[
    int | None,
    typer.Option(
        parser=whole_number,
        metavar="<int>",
        help="outputs of a linear model: 1 for two classes, K for a softmax of K (for other "
        "models the number of parameters); lowers epsilon where steps are short",
    ),
]
NonConvex = Annotated[bool, typer.Option("--non-convex", help="losses may be non-convex")]
Diameter = Annotated[
    float | None, typer.Option(help="diameter of the ball onto which iterates are projected")
]
ReleaseNoise = Annotated[
    float, typer.Option("--release-noise-std", help="noise added once, to the published model")
]
Adjacency = Annotated[
    str | None,
    typer.Option(
        autocompletion=among((*ADJACENCIES, ADD_REMOVE)),
        help="replace (one example becomes another) or zero-out (one is left out; for poisson "
        "this is add-remove) [default: replace with --sensitivity, else zero-out]",
    ),
]
ExamplesPerPerson = Annotated[
    int, typer.Option(help="most examples of one person; all of them are protected together")
]
Releases = Annotated[
    str | None,
    typer.Option(
        autocompletion=among(RELEASES),
        help="last-iterate, last-iterate-and-order or every-iterate [default: last-iterate; "
        "every-iterate without --step-size]",
    ),
]
Momentum = Annotated[float, typer.Option(help="momentum of the steps, as in torch.optim.SGD")]
Dampening = Annotated[float, typer.Option(help="dampening of the momentum, but in its first step")]
Nesterov = Annotated[bool, typer.Option("--nesterov", help="momentum in Nesterov's form")]
Save = Annotated[Path | None, typer.Option(help="also write the run to this .toml file")]


def described_by_flags(
    run: RunFile = None,
    examples: Examples = None,
    batch_size: BatchSize = None,
    sample_rate: SampleRate = None,
    batches: Rule = None,
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
    outputs: Outputs = None,
    non_convex: NonConvex = False,
    diameter: Diameter = None,
    release_noise_std: ReleaseNoise = 0.0,
    adjacency: Adjacency = None,
    examples_per_person: ExamplesPerPerson = 1,
    releases: Releases = None,
    momentum: Momentum = 0.0,
    dampening: Dampening = 0.0,
    nesterov: Nesterov = False,
) -> Description | TrainingRun:
    """The run that the file and the flags describe; flags take precedence over the file."""
    words = {name: value for name, value in locals().items() if value != _USUAL[name]}
    _refuse_contradictions(words)
    file = words.pop("run", None)
    if words.pop("non_convex", False):
        words["convex"] = False
    return Description(**words) if file is None else run_file.read_run(file, words)


_FLAGS = inspect.signature(described_by_flags).parameters
_USUAL = {name: one.default for name, one in _FLAGS.items()}


def takes_run(
    command: Callable[..., None], *, seeks_noise: bool = False, saves: bool = False
) -> Callable[..., None]:
    """The command with the options that describe a run in place of its first argument.

    It prints the defaults that it assumed after its answer.
    """
    own = dict(list(inspect.signature(command).parameters.items())[1:])

    @functools.wraps(command)
    def with_flags(**values: Any) -> None:
        said = described_by_flags(**{name: values.pop(name) for name in _FLAGS})
        file = values.pop("save") if saves else None
        if file is not None:
            run_file.check_new(file)
        if isinstance(said, Description):
            filled = filled_in(said, seeks_noise=seeks_noise)
            run, assumed = filled.run(), assumptions(said, filled)
        else:
            filled, run, assumed = None, said, []
        if file is not None:
            write_whole("save", file, run_file.as_toml(filled, run))
        command(run, **values)
        if file is not None:
            print(f"written: {file}", file=sys.stderr)
        for line in assumed:
            print(line, file=sys.stderr)

    merged = {**_FLAGS, **own}
    if saves:
        merged["save"] = inspect.Parameter(
            "save", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Save
        )
    with_flags.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # read by inspect
        [one.replace(kind=one.KEYWORD_ONLY) for one in merged.values()]
    )
    with_flags.__annotations__ = {name: one.annotation for name, one in merged.items()}
    del with_flags.__wrapped__
    return with_flags


def _refuse_contradictions(said: dict[str, Any]) -> None:
    """Raise an error for options that contradict each other."""
    pairs = (*ALTERNATIVES, ("noise_multiplier", "sensitivity"), ("batch_size", "sample_rate"))
    for one, other in pairs:
        if one in said and other in said:
            must_be = f"omitted: {flag(one)} already sets it"
            raise InvalidParameter(flag(other), said[other], must_be=must_be)
