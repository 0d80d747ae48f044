"""The page of `lastiterate explore` without its server: answers to presets, computed beforehand.

Noise and epochs of each preset can be moved, over a few values; other runs need the command.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import lastiterate
from lastiterate.errors import LastIterateError
from lastiterate.explore.answers import answer
from lastiterate.explore.page_runs import run_from_page
from lastiterate.explore.server import FIRST, PRESETS, page_options, usual_delta

FOLDER = "try"
_NOISE, _EPOCHS = (0.5, 1.0, 2.0), (0.2, 0.5, 1.0, 2.0, 5.0)
_SERVED = ("index.html",)
_EVERYWHERE = ("account", "tradeoff", "plan", "lower_bound", "code")
_AT_THE_PRESET = {"remedies": {}, "curve/extra_steps": {"over": "extra_steps"}}

Words = Mapping[str, Any]


def all_of_it() -> dict[str, str]:
    """Text by the name of its file."""
    page = {
        f"page/{entry.name}": entry.read_text(encoding="utf-8")
        for entry in (files("lastiterate.explore") / "page").iterdir()
        if entry.name not in _SERVED
    }
    page["page/api.js"] = (Path(__file__).parent / "answers_at_hand.js").read_text(encoding="utf-8")
    page["index.html"] = _index()
    grids = []
    with ProcessPoolExecutor() as pool:
        every = list(pool.map(answers, PRESETS.values()))
    for number, (name, words) in enumerate(PRESETS.items()):
        file = f"preset-{number}.json"
        page[f"answers/{file}"] = json.dumps(every[number], separators=(",", ":"))
        delta = usual_delta(words["examples"])
        grid = {"name": name, "words": words, "values": values(words), "file": file}
        grids.append(grid | {"delta": delta})
    page["answers/begin.json"] = json.dumps(page_options(PRESETS[FIRST]) | {"grids": grids})
    return {f"{FOLDER}/{name}": text for name, text in page.items()}


def values(words: Words) -> dict[str, list[float]]:
    """What can be chosen, by the word that it is for."""
    noise = "noise_std" if "noise_std" in words else "noise_multiplier"
    return {
        noise: [float(f"{factor * words[noise]:.3g}") for factor in _NOISE],
        "epochs": [round(factor * words["epochs"]) for factor in _EPOCHS],
    }


def answers(words: Words) -> dict[str, dict[str, Any]]:
    """By the values that were chosen, then by the question."""
    grid = values(words)
    (noise, noises), (_, epochs) = grid.items()
    told = {
        _key(chosen): dict(_answers(words | chosen, whole=words | chosen == words))
        for chosen in _choices(grid)
    }
    for chosen in _choices(grid):
        here = told[_key(chosen)]
        along = [told[_key(chosen | {"epochs": one})]["account"] for one in epochs]
        here["curve/epochs"] = _curve("epochs", epochs, chosen["epochs"], along)
        along = [told[_key(chosen | {noise: one})]["account"] for one in noises]
        here["curve/noise"] = _curve(noise, noises, chosen[noise], along)
    return told


def _choices(grid: Mapping[str, list[float]]) -> Iterator[dict[str, float]]:
    for chosen in itertools.product(*grid.values()):
        yield dict(zip(grid, chosen, strict=True))


def _key(chosen: Mapping[str, float]) -> str:
    return "|".join(json.dumps(float(one)) for one in chosen.values())


def _answers(words: Words, *, whole: bool) -> Iterator[tuple[str, Any]]:
    run_from_page(words)  # fails here where a preset has no such neighbour
    asked: dict[str, dict[str, Any]] = {question: {} for question in _EVERYWHERE}
    begun = {"run": words, "delta": usual_delta(words["examples"])}
    for question, more in (asked | _AT_THE_PRESET if whole else asked).items():
        try:
            yield question, answer(question.partition("/")[0], begun | more)
        except LastIterateError as error:
            yield question, {"error": str(error)}


def _curve(across: str, x: list[float], here: float, along: list[Any]) -> dict[str, Any]:
    """As the server draws it, from accounts."""
    ids = dict.fromkeys(row["id"] for told in along for row in told["bounds"] if row["used"])
    by_id = [{row["id"]: row["epsilon"] for row in told["bounds"]} for told in along]
    curves = {id_: [rows.get(id_) for rows in by_id] for id_ in ids}
    return {"across": across, "x": x, "here": here, "curves": curves}


def _index() -> str:
    text = (files("lastiterate.explore") / "page" / "index.html").read_text(encoding="utf-8")
    said = {
        '<p id="status" role="status" aria-live="polite"></p>': '<p id="status" role="status" '
        'aria-live="polite">loading… (browsers load it from a server only, not from a folder)</p>',
        "Everything is computed on this computer.": "The answers to a few runs were computed "
        "beforehand, so only noise and epochs move; <code>lastiterate explore</code> answers any.",
        "<footer>": f'<footer><p><a href="../explore.html">About this page</a>, of lastiterate '
        f"{lastiterate.__version__}</p>",
        "<body>": '<body class="at-hand">',
    }
    for old, new in said.items():
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text
