"""Names and first lines of docstrings: the field's words, and each name for one thing."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

import lastiterate

PACKAGE = Path(lastiterate.__file__).parent

# One concept in two layers; every other name of a module is its own.
SHARED_MODULES = {
    "balls_and_bins": "the batch rule and its bound",
    "dp_accounting": "reports and profiles in the terms of that package",
    "envelope": "the clip in numpy and compiled",
    "ledger": "the ledger and its command",
    "rounded_normal": "the exact sampler, in numpy and compiled",
    "selection": "the certificate of a private selection and its profile",
    "verify": "the verification and its command",
}
# Estimators for rows on a cluster have the names of those for rows in memory.
SHARED_CLASSES = {"dask/estimators.py"}

# The words to use instead are in CONTRIBUTING.md.
DENIED = re.compile(
    r"lend|lends|lent|lending|lenders?|borrow\w*|loans?|prices?|priced|pays?|paid|unpaid"
    r"|payments?|arriv\w*|besides|forg[eo]t\w*|thrift\w*|twice|told|picks|places?"
)
ALLOWED = re.compile(r"in_place|decimal_places?")

# How a line begins that needs the line before it, or its subject, from elsewhere.
FRAGMENT = re.compile(
    r"(The same|What|Of|That|So|And|But|Or|As|Such|Also|Too|By|For|To|When|Where|With|Without|From"
    r"|Into|At|On|If|Whose|Who)\b(?!-)"
)


@cache
def parsed():
    """The syntax of every file of the package, by its path inside."""
    return {
        file.relative_to(PACKAGE).as_posix(): ast.parse(file.read_text())
        for file in sorted(PACKAGE.rglob("*.py"))
    }


def names(tree):
    """Every name that a module gives to others: not its local variables."""
    homes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
    for home in homes:
        for node in home.body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)):
                yield from (
                    each.id
                    for each in ast.walk(node)
                    if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
                )
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def words(name):
    """The words of a name in snake or camel case, in small letters."""
    kept = ALLOWED.sub("", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower())
    return [word for word in kept.split("_") if word]


def denied(name):
    return any(DENIED.fullmatch(word) for word in words(name))


def public_classes():
    """(name, module) of every class at the top of a module whose name has no underscore first."""
    for module, tree in parsed().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, module


def documented():
    """(module, name, first line) of every docstring."""
    for module, tree in parsed().items():
        for node in ast.walk(tree):
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                text = ast.get_docstring(node)
                if text:
                    yield module, getattr(node, "name", ""), text.splitlines()[0]


class TestModules:
    def test_no_two_share_a_name(self):
        homes = defaultdict(list)
        for module in parsed():
            name = Path(module).stem
            if not name.startswith("__"):
                homes[name].append(module)
        shared = {name: found for name, found in homes.items() if len(found) > 1}
        assert {name: found for name, found in shared.items() if name not in SHARED_MODULES} == {}
        assert shared.keys() >= SHARED_MODULES.keys(), "this one is shared no more"

    def test_no_word_is_denied(self):
        assert not [module for module in parsed() if any(map(denied, re.findall(r"\w+", module)))]


class TestClasses:
    def test_no_two_share_a_name(self):
        homes = defaultdict(list)
        for name, module in public_classes():
            if module not in SHARED_CLASSES:
                homes[name].append(module)
        assert {name: found for name, found in homes.items() if len(found) > 1} == {}


class TestNames:
    def test_no_word_is_denied(self):
        found = {
            (module, name)
            for module, tree in parsed().items()
            for name in names(tree)
            if denied(name)
        }
        assert not found

    @pytest.mark.parametrize(
        "name",
        ["Loan", "_by_price", "paid_before", "arrivals", "forgotten", "hidden_place", "Picks"],
    )
    def test_a_denied_word_is_found(self, name):
        assert denied(name)

    @pytest.mark.parametrize(
        "name",
        ["replace", "in_place", "decimal_places", "payload", "displaced", "blend", "position"],
    )
    def test_others_are_not(self, name):
        assert not denied(name)


class TestDocstrings:
    def test_no_first_line_is_a_fragment(self):
        found = [
            (module, name, line) for module, name, line in documented() if FRAGMENT.match(line)
        ]
        assert not found
