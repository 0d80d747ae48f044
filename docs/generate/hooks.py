"""Made when pages are built: bounds, commands, estimators, pictures, a page to play on."""

from typing import Any

import bounds_page
import commands_page
import estimators
import explorer
import maths
import pictures
from mkdocs.structure.files import File, Files

import lastiterate


def on_config(config: Any) -> Any:
    """Which version the pages are of, at the foot of each."""
    config.copyright = f"lastiterate {lastiterate.__version__}, Apache-2.0"
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Adds pages and pictures that are nowhere in the source tree."""
    made = {"bounds.md": bounds_page.text(), "commands.md": commands_page.text()}
    for name, content in made.items():
        files.append(File.generated(config, name, content=content))
    for name, content in pictures.all_of_them().items():
        files.append(File.generated(config, f"pictures/{name}", content=content))
    for name, content in explorer.all_of_it().items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Lists that come from the library."""
    return estimators.filled_in(markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Formulas."""
    return maths.as_mathml(html)
