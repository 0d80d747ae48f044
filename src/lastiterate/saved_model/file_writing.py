"""The files of saved models: how ours are recognised, and written whole or not at all."""

from collections.abc import Callable, Mapping
from pathlib import Path

from lastiterate._files import IsOurs, draft_beside, has, is_record, refuse_replacing
from lastiterate.errors import InvalidParameter
from lastiterate.saved_model.safetensors_file import TensorFile, read_tensors

MODEL, CERTIFICATE = "model.json", "certificate.json"
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
    "README.md": has(b'library_name: "lastiterate"'),
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


def write_together(folder: Path, texts: Mapping[str, str | bytes]) -> None:
    """Write all files or, if interrupted, none."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    drafts: dict[Path, Path] = {}
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            drafts[folder / name] = draft_beside(folder / name, text)
        for final, draft in drafts.items():
            if not final.exists():
                written.append(final)
            draft.replace(final)
    except BaseException:
        for path in (*drafts.values(), *written):
            path.unlink(missing_ok=True)
        for each in created:
            if each.is_dir():
                each.rmdir()
        raise
