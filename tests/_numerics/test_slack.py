"""Slack is added in one place: outside `_numerics` no factor 1 + 1e-12 and no machine epsilon."""

import ast
from pathlib import Path

import pytest

import lastiterate

PACKAGE = Path(lastiterate.__file__).parent
SMALL = 1e-4  # a factor nearer to 1 than this is slack
EPSILONS = {"eps", "epsneg", "epsilon"}  # of numpy.finfo and sys.float_info


def slack_in(source):
    """Lines that have slack of their own."""
    tree = ast.parse(source)
    small = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and is_small(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    return sorted({node.lineno for node in ast.walk(tree) if is_slack(node, small)})


def is_slack(node, small):
    if isinstance(node, ast.Attribute) and node.attr in EPSILONS:
        return "finfo" in ast.unparse(node) or "float_info" in ast.unparse(node)
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Mult | ast.Div):
        return is_near_one(node.value, small)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        return is_near_one(node.left, small) or is_near_one(node.right, small)
    return isinstance(node, ast.Assign) and is_near_one(node.value, small)


def is_near_one(node, small):
    """1 + x or 1 - x, x small."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)):
        return False
    one = isinstance(node.left, ast.Constant) and node.left.value == 1
    return one and is_small(node.right, small)


def is_small(node, small):
    """A small number, a name or call that stands for one, or a multiple of one."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, float) and 0.0 < node.value < SMALL
    if isinstance(node, ast.Name):
        return node.id in small or node.id.endswith("_ROUNDINGS")
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", "") == "ulps"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return is_small(node.left, small) or is_small(node.right, small)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
        return isinstance(node.right, ast.UnaryOp) and ast.unparse(node.left) in {"2", "2.0"}
    return False


def test_is_nowhere_else():
    files = {
        str(file.relative_to(PACKAGE)): slack_in(file.read_text())
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.relative_to(PACKAGE).parts[0] != "_numerics"
    }
    assert not {name for name, lines in files.items() if lines}, files


@pytest.mark.parametrize(
    "source",
    [
        "y = x * (1.0 + 1e-12)",
        "y = (1 - 1e-9) * x",
        "y = x / (1.0 - 3 * 1e-15)",
        "y *= 1.0 + 1e-7",
        "_UP = 1.0 + 1e-12",
        "_GAIN = 1e-9\ny = x * (1.0 - _GAIN)",
        "y = x * (1.0 + ulps(4))",
        "y = x * (1.0 + n * FEW_ROUNDINGS)",
        "y = 4 * np.finfo(float).eps",
        "y = x * (1.0 + 4 * sys.float_info.epsilon)",
        "y = x * (1.0 + 2.0**-52)",
    ],
)
def test_is_found(source):
    assert slack_in(source)


@pytest.mark.parametrize(
    "source",
    ["y = up(x, 1e-12)", "y = x * (1.0 - share)", "y = 1e-12 * x", "y = x * (1.0 + 0.5)"],
)
def test_what_is_none_is_not_found(source):
    assert not slack_in(source)
