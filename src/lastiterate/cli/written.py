"""Files that are written whole or not at all, and never over others without a word."""

from pathlib import Path

from lastiterate.errors import InvalidParameter


def refuse_overwriting(*paths: Path | None, force: bool) -> None:
    """Before anything is spent: what is there may be the only copy of a release."""
    there = [str(path) for path in paths if path is not None and path.exists()]
    if there and not force:
        must_be = "a place where nothing is yet, unless you add --force"
        raise InvalidParameter("out", must_be=must_be, found=", ".join(there))


def write_text(path: Path, text: str) -> None:
    """The whole file or, if interrupted, none."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        draft.write_text(text, encoding="utf-8", newline="")
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def write_together(folder: Path, texts: dict[str, str]) -> None:
    """All of the files or, if interrupted, none."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    drafts = {folder / name: folder / f".{name}.draft" for name in texts}
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for final, draft in drafts.items():
            draft.write_text(texts[final.name], encoding="utf-8")
        for final, draft in drafts.items():
            if not final.exists():
                written.append(final)
            draft.replace(final)
    except BaseException:
        for path in (*drafts.values(), *written):
            path.unlink(missing_ok=True)
        for each in made:
            if each.is_dir():
                each.rmdir()
        raise
