"""Files that are written whole or not at all."""

from collections.abc import Mapping
from pathlib import Path

MODEL, CERTIFICATE = "model.json", "certificate.json"


def write_text(path: Path, text: str) -> None:
    """Write a file completely or, if interrupted, not at all."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8", newline="")
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_together(folder: Path, texts: Mapping[str, str | bytes]) -> None:
    """Write all files or, if interrupted, none."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    drafts = {folder / name: folder / f".{name}.draft" for name in texts}
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for final, draft in drafts.items():
            text = texts[final.name]
            draft.write_bytes(text if isinstance(text, bytes) else text.encode())
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
