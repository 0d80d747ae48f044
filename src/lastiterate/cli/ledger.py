"""ledger: the privacy budget of a data set and all charges to it, in a file."""

import json
import math
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastiterate._display import printable, up
from lastiterate._files import is_record, refuse_replacing, write_whole
from lastiterate.cli.terminal import OTHER_VERSION
from lastiterate.errors import InvalidLedger, InvalidParameter

if TYPE_CHECKING:
    from lastiterate.ledger.ledger import Ledger

File = Annotated[Path, typer.Argument(metavar="FILE", help="the ledger")]
WitnessFile = Annotated[
    Path | None,
    typer.Option(help="file, best elsewhere, of how far the ledger has come: it must not go back"),
]
About = Annotated[str, typer.Option(help="a description for readers")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    ledgers = typer.Typer(
        name="ledger",
        help="The privacy budget of a data set: charges, total, and what is left.",
        invoke_without_command=True,
        rich_markup_mode=None,
    )
    ledgers.callback()(_help)
    for command in (show, add, withdraw, verify, head, export):
        ledgers.command(command.__name__)(command)
    ledgers.command("open")(open_)
    app.add_typer(ledgers)


def _help(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


def open_(
    file: File,
    epsilon: Annotated[float, typer.Option(help="of the budget")],
    delta: Annotated[float, typer.Option(help="of the budget")],
    adjacency: Annotated[str, typer.Option(help="replace or zero-out")] = "replace",
    examples_per_person: Annotated[
        int, typer.Option(help="most examples of one person, protected together")
    ] = 1,
    adaptive: Annotated[
        bool,
        typer.Option(
            "--adaptive", help="settings may depend on earlier releases (adaptive composition)"
        ),
    ] = False,
    witness: WitnessFile = None,
) -> None:
    """Create a ledger with a budget.

    Example: lastiterate ledger open people.ledger --epsilon 2 --delta 1e-5
    """
    from lastiterate.ledger.ledger import Ledger

    if file.exists():
        raise InvalidParameter("file", str(file), must_be="a new file")
    ledger = Ledger(
        file,
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        examples_per_person=examples_per_person,
        adaptive=adaptive,
        witness=witness,
    )
    print(ledger)


def show(file: File, witness: WitnessFile = None) -> None:
    """Show the charges, their total, and the budget that is left.

    Example: lastiterate ledger show people.ledger
    """
    print(existing_ledger(file, witness))


def add(
    file: File,
    certificate: Annotated[
        Path | None, typer.Argument(metavar="CERTIFICATE", help="a certificate.json")
    ] = None,
    gaussian: Annotated[
        float | None, typer.Option(help="noise multiplier of a Gaussian mechanism")
    ] = None,
    laplace: Annotated[
        float | None, typer.Option(help="noise multiplier of a Laplace mechanism")
    ] = None,
    sampling_probability: Annotated[
        float, typer.Option(help="Poisson sampling probability of each example")
    ] = 1.0,
    times: Annotated[int, typer.Option(help="how many such releases there were")] = 1,
    epsilon: Annotated[
        float | None, typer.Option(help="of any other mechanism, with --delta")
    ] = None,
    delta: Annotated[float, typer.Option(help="of that mechanism")] = 0.0,
    adjacency: Annotated[
        str | None, typer.Option(help="of that mechanism: replace, zero-out or add-remove")
    ] = None,
    examples_per_person: Annotated[
        int | None,
        typer.Option(help="examples of one person that the mechanism or epsilon protects"),
    ] = None,
    about: About = "",
    already_published: Annotated[
        bool, typer.Option("--already-published", help="charge it even if the budget is exceeded")
    ] = False,
    witness: WitnessFile = None,
) -> None:
    """Charge a release: a certificate, a mechanism, or an epsilon.

    Exit code 1: the budget would be exceeded, and nothing was charged.

    Example: lastiterate ledger add people.ledger --gaussian 20 --about "how many are married"
    """
    given = [one for one in (certificate, gaussian, laplace, epsilon) if one is not None]
    if len(given) != 1:
        name = "exactly one of certificate, --gaussian, --laplace and --epsilon"
        raise InvalidParameter(name, must_be="given", found=f"{len(given)} of them")
    release: Any = certificate
    if epsilon is not None:
        release = (epsilon, delta)
    elif certificate is None:
        release = _event(gaussian, laplace, sampling_probability, times)
    ledger = existing_ledger(file, witness)
    about = about or ("" if certificate is None else str(certificate))
    entry = ledger.add(
        release,
        about,
        adjacency=adjacency,
        examples_per_person=examples_per_person,
        already_published=already_published,
    )
    print(f"charged as entry {entry['n']}: epsilon {_epsilon_alone(entry)} alone")
    print(f"spent: {up(ledger.spent().epsilon(ledger.delta))} of {ledger.epsilon:g}")


def withdraw(
    file: File,
    id_: Annotated[str, typer.Argument(metavar="ID", help="as `show` has it")],
    because: Annotated[str, typer.Option(help="why nothing of it was published")],
    witness: WitnessFile = None,
) -> None:
    """Withdraw the charge of a failed training of which nothing was published or looked at.

    Example: lastiterate ledger withdraw people.ledger 2f5c --because "out of memory at the start"
    """
    existing_ledger(file, witness).withdraw(id_, because)


def verify(
    file: File,
    head: Annotated[
        str | None, typer.Option(help="a hash that the chain must contain, or a file of `head`")
    ] = None,
    signed_by: Annotated[
        Path | None, typer.Option(help="public key that the file of --head must be signed with")
    ] = None,
    witness: WitnessFile = None,
) -> int:
    """Check the whole chain, and derive every cost and certificate again.

    Exit code 0: it holds. 1: it does not. 3: it holds, but another version of lastiterate issued
    some of its certificates, which is named.

    Example: lastiterate ledger verify people.ledger
    """
    try:
        ledger = existing_ledger(file, witness)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the text below says it
            ledger.verify(head=_kept_head(head, signed_by))
    except InvalidLedger as error:
        print(error, file=sys.stderr)
        return 1
    from lastiterate.ledger.entries import LedgerState, of_other_versions

    entries = ledger.entries()
    proved = ledger.budget.guaranteed_epsilon(LedgerState(entries))
    print(f"holds: {len(entries)} entries, epsilon {up(proved)} at delta {ledger.delta:g}")
    print(f"head: {ledger.head()}")
    if head is None and witness is None:
        print(
            "not checked: whether the last entries were removed or the whole file rewritten; keep "
            "this head elsewhere and pass it with --head next time"
        )
    for number in (other := of_other_versions(entries)):
        software = printable(str(entries[number]["certificate"]["software"]))
        print(f"not checked: the certificate of entry {number}, which {software} issued")
    return OTHER_VERSION if other else 0


def head(
    file: File,
    out: Annotated[Path | None, typer.Option(help="file to write the head to")] = None,
    sign: Annotated[Path | None, typer.Option(help="sign it with this Ed25519 key")] = None,
) -> None:
    """Print the head of a ledger: keep it elsewhere, and pass it to `verify --head` later.

    A file of it also serves as a witness.

    Example: lastiterate ledger head people.ledger
    """
    from lastiterate.ledger.journal import Head, is_earlier_head, refuse_replacing_head

    entries = existing_ledger(file).entries()
    text = Head.of(entries).as_text()
    if out is not None:
        refuse_replacing_head("out", out, entries)
    if sign is not None:
        from lastiterate.certificate.signature import LEDGER_HEAD, Signer

        text = Signer(sign).signed(text, purpose=LEDGER_HEAD)
    if out is None:
        print(text, end="")
    else:
        write_whole("out", out, text, is_earlier_head(out, entries))
        print(f"written: {out}")


def _kept_head(head: str | None, signed_by: Path | None) -> Any:
    """The head that was given as a hash, or by a file."""
    if head is None or not Path(head).is_file():
        if signed_by is not None:
            raise InvalidParameter("--head", head, must_be="a file, if --signed-by is given")
        return head
    from lastiterate.certificate.signature import LEDGER_HEAD, wrong_signature
    from lastiterate.ledger.journal import Head

    text = Path(head).read_text(encoding="utf-8")
    kept = Head.from_text(text, head)
    if signed_by is not None:
        why = wrong_signature(json.loads(text), signed_by, purpose=LEDGER_HEAD)
        if why is not None:
            raise InvalidLedger(head, [why])
    return kept


def export(
    file: File,
    out: Annotated[Path | None, typer.Option(help="a JSON file; else printed")] = None,
) -> None:
    """Export the ledger as one JSON object: budget, total and every entry.

    Example: lastiterate ledger export people.ledger --out people-ledger.json
    """
    ledger = existing_ledger(file)
    record = {
        "epsilon": ledger.epsilon,
        "delta": ledger.delta,
        "adjacency": ledger.adjacency,
        "examples_per_person": ledger.examples_per_person,
        "adaptive": ledger.adaptive,
        "spent": ledger.spent().epsilon(ledger.delta),
        "guarantee": ledger.guarantee().epsilon(ledger.delta),
        "left": ledger.largest_epsilon(),
        "head": ledger.head(),
        "entries": list(ledger.entries()),
    }
    text = json.dumps(record, indent=1) + "\n"
    if out is not None:
        is_export = is_record(lambda found: set(found) == set(record))
        refuse_replacing("out", out, is_export)
    if out is None:
        print(text, end="")
    else:
        write_whole("out", out, text, is_export)
        print(f"written: {out}")


def _epsilon_alone(entry: Mapping[str, Any]) -> str:
    return up(math.inf if entry["alone"] is None else entry["alone"])


def existing_ledger(file: Path, witness: Path | None = None, *, name: str = "file") -> "Ledger":
    """The ledger of a file that is there; `name` is of the argument that has its path."""
    from lastiterate.ledger.ledger import Ledger

    if not file.exists():
        must_be = "a ledger; create it with `lastiterate ledger open`"
        raise InvalidParameter(name, must_be=must_be, found=f"{file}, which does not exist")
    return Ledger(file, witness=witness)


def _event(gaussian: float | None, laplace: float | None, probability: float, times: int) -> Any:
    from lastiterate.profile.pld import require

    require("an event")
    import dp_accounting

    noise = gaussian if gaussian is not None else laplace
    kind = dp_accounting.GaussianDpEvent if gaussian is not None else dp_accounting.LaplaceDpEvent
    event = kind(noise)
    if probability != 1.0:
        event = dp_accounting.PoissonSampledDpEvent(probability, event)
    return event if times == 1 else dp_accounting.SelfComposedDpEvent(event, times)
