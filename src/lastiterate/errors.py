"""Errors a caller can act on, one class per kind of action; warnings at the caller's own line."""

import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

from lastiterate._display import printable

# Distributions whose modules have other names.
_DISTRIBUTIONS = {"sklearn": "scikit-learn", "dp_accounting": "dp-accounting"}
# It asks for dm-tree, which it never imports and which cannot be built on Python 3.15.
_WITHOUT_WHEELS = "pip install --no-deps 'dp-accounting>=0.5,<0.7' && pip install absl-py attrs"
# The packages between a user's line and the library; their lines say nothing to a user.
_PACKAGES_BETWEEN = frozenset({"lastiterate", "sklearn", "joblib", "opacus", "numpy", "contextlib"})


class PrivacyWarning(UserWarning):
    """Something next to the training spends privacy that `privacy_` does not include."""


class LastIterateError(Exception):
    """Base of every error this package raises on purpose."""


class InvalidParameter(LastIterateError, ValueError):
    """An argument is outside the range in which it means anything.

    `found` says in words what was found instead, where the value cannot be shown: it is private,
    or many values make it up.
    """

    def __init__(
        self, name: str, value: object = None, *, must_be: str, found: str | None = None
    ) -> None:
        self.name, self.value, self.must_be, self.found = name, value, must_be, found
        got = f"got {name}={_short_repr(value)}" if found is None else f"found {found}"
        super().__init__(f"{name} must be {must_be}; {got}.")

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross from other processes as pickles.
        return _rebuild_error, (type(self), self.name, self.value, self.must_be, self.found)


class InvalidType(InvalidParameter, TypeError):
    """An argument is not the kind of thing that is expected."""


class InvalidCertificate(LastIterateError, ValueError):
    """A certificate does not say what follows from what it says."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__(printable(f"the certificate does not hold: {'; '.join(reasons)}."))


class OtherVersion(LastIterateError, ValueError):
    """Something was written by another version of this package, in a format unknown to this one.

    That says nothing for or against it: the version that wrote it can tell.
    """

    def __init__(self, text: str) -> None:
        self.reasons = [text]
        LastIterateError.__init__(self, text)

    @classmethod
    def of(cls, what: str, found: object, known: object, software: object) -> Self:
        """The error for `what`, of this format and issued by this software, as far as is known."""
        import lastiterate

        this = f"this is lastiterate {lastiterate.__version__} ({known})"
        issued = version_in(software)
        if issued is None:
            return cls(
                f"{what} is of another version of lastiterate ({found}), and {this}. To use it, "
                "install the version that wrote it, as the certificate beside it names it."
            )
        return cls(
            f"{what} was written by lastiterate {issued} ({found}), and {this}. To check it, "
            f"install that version, {_installation(issued)}"
        )


class OtherVersionCertificate(OtherVersion, InvalidCertificate):
    """A certificate that another version issued, which this one can neither confirm nor refute."""


def _installation(version: str) -> str:
    """How to install a version, from a clone of the repository."""
    if "dev" in version:
        return (
            "a development version: several commits bear that name, so ask who issued it which "
            "one, and in a clone of the repository: git checkout COMMIT && pip install ."
        )
    return f"in a clone of the repository: git checkout v{version} && pip install ."


def version_in(software: object) -> str | None:
    """The version that a file names, if it can be one."""
    found = re.fullmatch(r"lastiterate ([0-9][0-9A-Za-z.+!_-]{0,40})", str(software))
    return None if found is None else found[1]


class InvalidLedger(LastIterateError, ValueError):
    """A ledger was changed, or does not say what follows from what it says."""

    def __init__(self, path: str, reasons: list[str]) -> None:
        self.path, self.reasons = path, reasons
        super().__init__(printable(f"the ledger {path} does not hold: {'; '.join(reasons)}."))


class BudgetExceeded(LastIterateError):
    """A ledger has not enough left for what was asked for; nothing was charged or trained."""


class NumericalFailure(LastIterateError, ArithmeticError):
    """The arithmetic could not certify a number, so none is returned."""


class MissingExtra(LastIterateError, ImportError):
    """Something optional is asked for, and what it needs is not installed."""

    def __init__(self, what: str, package: str, *, extra: str) -> None:
        command = (
            _WITHOUT_WHEELS
            if package == "dp-accounting"
            else f"pip install 'lastiterate[{extra}]', or in a clone of the repository "
            f"pip install '.[{extra}]'"
        )
        super().__init__(f"{what} needs {package}: {command}.")

    @classmethod
    def of(cls, error: ImportError, what: str, *, extra: str) -> Self:
        """The error that names the package whose import failed, at the root of `error`."""
        root = error
        while True:
            # What a package tried before, and did without, is a context but no cause.
            behind = root.__cause__ or (root.__context__ if root.name is None else None)
            if not isinstance(behind, ImportError):
                break
            root = behind
        package = (root.name or error.name or "a package").partition(".")[0]
        package = _DISTRIBUTIONS.get(package, package)
        if not isinstance(root, ModuleNotFoundError):
            package += f", which is installed but cannot be imported ({_short_repr(str(root))})"
        return cls(what, package, extra=extra)


@dataclass(frozen=True)
class Unmet:
    """One hypothesis of one bound that this training run does not satisfy."""

    needs: str
    found: str
    remedy: str = ""

    def __str__(self) -> str:
        line = f"needs {self.needs}; found {self.found}"
        return f"{line} -> {self.remedy}" if self.remedy else line


class NoBoundApplies(LastIterateError):
    """The run is well described, but none of the bounds asked for covers it."""

    def __init__(self, run: object, unmet: Mapping[str, Sequence[Unmet]]) -> None:
        self.run, self.unmet = run, unmet
        lines = [f"no certified bound covers this run:\n  {run}"]
        for bound, reasons in unmet.items():
            lines.append(f"  {bound}")
            lines.extend(f"    {reason}" for reason in reasons)
        super().__init__("\n".join(lines))


class NoInstanceApplies(LastIterateError):
    """None of the families of instances asked for is known to obey the run's description."""

    def __init__(self, run: object, needs: Mapping[str, str]) -> None:
        self.run, self.needs = run, needs
        lines = [f"no instance is known that obeys this run's description:\n  {run}"]
        lines.extend(f"  {family}\n    needs {reason}" for family, reason in needs.items())
        super().__init__("\n".join(lines))


class UnreachableTarget(LastIterateError, ValueError):
    """No value of the parameter being calibrated meets the target."""

    def __init__(self, target: str, why: str, *, possible_with: str) -> None:
        self.target, self.why, self.possible_with = target, why, possible_with
        super().__init__(f"{target} cannot be reached: {why}. Possible with {possible_with}.")


class RefusedTraining(LastIterateError, ValueError):
    """One example may count for more than the accountant knows, so that no number is true."""

    def __init__(self, why: str, *, instead: str) -> None:
        self.why, self.instead = why, instead
        super().__init__(f"this training cannot be accounted for: {why}. Instead, {instead}.")


def _rebuild_error(kind: type[InvalidParameter], *said: Any) -> InvalidParameter:
    name, value, must_be, found = said
    return kind(name, value, must_be=must_be, found=found)


def _short_repr(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-12:]}"


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the first line on the stack that is outside of this library and scikit-learn."""
    warnings.warn(message, category, stacklevel=_levels_to_caller())


def _levels_to_caller() -> int:
    """How many levels above `warn` the caller is, counted as `warnings.warn` counts."""
    levels = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_between(frame):
        frame, levels = frame.f_back, levels + 1
    return levels


def _is_between(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _PACKAGES_BETWEEN
