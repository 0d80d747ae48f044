"""The files of saved models: how ours are recognised, and written whole or not at all."""

import json
from collections.abc import Mapping
from pathlib import Path

from lastiterate._files import IsOurs, draft_beside, has, is_record, refuse_replacing
from lastiterate.errors import InvalidParameter

MODEL, CERTIFICATE = "model.json", "certificate.json"
CARD_MARK = b'library_name: "lastiterate"'


def tensors_named(content: bytes) -> dict[str, object]:
    """The header of a safetensors file; empty if it has none that can be read."""
    size = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + size])
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _is_weights(content: bytes) -> bool:
    names = set(tensors_named(content))
    return "parameters" in names and names <= {"parameters", "coef", "intercept", "center"}


def _is_head(content: bytes) -> bool:
    about = tensors_named(content).get("__metadata__")
    return isinstance(about, dict) and "lastiterate" in about


OURS: Mapping[str, IsOurs] = {
    MODEL: is_record(lambda record: str(record.get("format")).startswith("lastiterate model ")),
    CERTIFICATE: is_record(lambda record: {"format", "guarantee", "run", "digest"} <= set(record)),
    "config.json": is_record(
        lambda record: str(record.get("layout")).startswith("lastiterate hub ")
    ),
    "model.safetensors": _is_weights,
    "head.safetensors": _is_head,
    "README.md": has(CARD_MARK),
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
