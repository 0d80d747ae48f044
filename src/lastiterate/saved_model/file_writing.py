"""The files of saved models: how ours are recognised, and written whole or not at all."""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from lastiterate._files import IsOurs, is_record, is_sealed, refuse_replacing, write_files
from lastiterate.errors import InvalidParameter
from lastiterate.saved_model.safetensors_file import TensorFile, read_tensors

MODEL, CERTIFICATE = "model.json", "certificate.json"
_MOST_NAMES = 100  # that are tried
_LEARNED = ("coef", "intercept", "center")


def _are_tensors(known: Callable[[TensorFile], bool]) -> IsOurs:
    """Recognises files of tensors of which this is true."""

    def is_ours(content: bytes) -> bool:
        try:
            return known(read_tensors(content))
        except ValueError:
            return False

    return is_ours


OURS: Mapping[str, IsOurs] = {
    MODEL: is_record(lambda record: str(record.get("format")).startswith("lastiterate model ")),
    CERTIFICATE: is_record(lambda record: {"format", "guarantee", "run", "digest"} <= set(record)),
    "config.json": is_record(
        lambda record: str(record.get("layout")).startswith("lastiterate hub ")
    ),
    "model.safetensors": _are_tensors(
        lambda file: {"parameters"} <= set(file.tensors) <= {"parameters", *_LEARNED}
    ),
    "head.safetensors": _are_tensors(lambda file: "lastiterate" in file.texts),
    "README.md": is_sealed,
}


def refuse_replacing_in(
    name: str, folder: Path, names: tuple[str, ...], *, allowed: bool, remedy: str = ""
) -> None:
    """Raise unless files of these names can be written there without the loss of another's."""
    if folder.exists() and not folder.is_dir():
        must_be = "a folder, or a path where none exists"
        raise InvalidParameter(name, must_be=must_be, found=f"{folder}, which is a file")
    new = f"a folder without {' and '.join(names)}"
    for one in names:
        refuse_replacing(name, folder / one, OURS[one], allowed=allowed, new=new, remedy=remedy)


def write_together(
    name: str,
    folder: Path,
    texts: Mapping[str, str | bytes],
    *,
    allowed: bool,
    remedy: str = "",
) -> None:
    """Write all files of a folder or, if interrupted, none; ours are replaced where allowed."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    contents = {folder / one: text for one, text in texts.items()}
    replaces = {folder / one: OURS[one] if allowed else None for one in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_files(name, contents, replaces, remedy=remedy)
    except BaseException:
        with suppress(OSError):  # somebody else's files are in it by now
            for each in created:
                if each.is_dir():
                    each.rmdir()
        raise


def written(
    name: str, path: Path, write: Callable[[Path, bool], None], *, allowed: bool
) -> tuple[Path, list[InvalidParameter]]:
    """Path that `write` wrote, a free one beside it if it was taken since, and the errors.

    What privacy was spent on is not lost: it gets a free name, and the error, which says where it
    is, is for the end of the command.
    """
    try:
        write(path, allowed)
    except (InvalidParameter, OSError) as error:
        near = path.resolve() if path.name in ("", "..") else path
        for number in range(2, _MOST_NAMES):
            beside = near.parent / f"{near.stem}-{number}{near.suffix}"
            if os.path.lexists(beside):
                continue
            try:
                write(beside, False)
            except InvalidParameter:  # taken, too, in this very moment
                continue
            except OSError:
                break
            must_be = getattr(error, "must_be", "a path that can be written")
            found = f"{getattr(error, 'found', None) or error}: {beside} was written instead"
            return beside, [InvalidParameter(name, must_be=must_be, found=found)]
        raise
    return path, []
