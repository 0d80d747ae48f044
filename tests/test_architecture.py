"""Layers, public names and what importing costs."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lastiterate
from lastiterate import profile
from lastiterate.run.batch_rules.base import RULES, BatchRule
from lastiterate.train.objectives import Objective

PACKAGE = Path(lastiterate.__file__).parent

# A module may import from storeys below its own, and within its own as long as nothing is circular.
STOREYS = {
    "arithmetic": {"errors", "_numerics", "_check", "_display", "_files", "_progress"},
    "notions": {"run", "shifts", "profile", "other_releases", "tables"},
    "bounds": {"bounds", "lower_bounds"},
    "questions": {
        "accounting", "calibration", "planning", "langevin_sampling", "unlearn", "train",
        "certificate", "ledger", "report", "plot", "dp_accounting", "features",
    },
    "places of work": {
        "linear_model", "saved_model", "torch", "opacus", "dask", "audit", "reproduce", "explore",
        "cli", "onnx", "huggingface",
    },
}  # fmt: skip
# A report is asked to print itself or for another report, and a pickle for a lower bound by its id,
# so these are loaded when it is.
LOADED_LATER = {
    ("bounds", "lower_bounds"),
    ("accounting", "dp_accounting"),
    ("accounting", "report"),
}
STRANGERS = [("run", "shifts"), ("run", "profile"), ("shifts", "profile")]


@cache
def parsed():
    """The syntax of every file of the package."""
    return {file: ast.parse(file.read_text()) for file in sorted(PACKAGE.rglob("*.py"))}


@cache
def imported():
    return list(_imported())


def _imported():
    """(importing file, imported module) for every import inside the package."""
    folders = {".".join(("lastiterate", *path.relative_to(PACKAGE).parts[:-1]))
               for path in PACKAGE.rglob("__init__.py")}  # fmt: skip
    for file, tree in parsed().items():
        for node in ast.walk(tree):
            modules = []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules = [node.module]
                if node.module in folders:
                    modules = [f"{node.module}.{name.name}" for name in node.names]
            elif isinstance(node, ast.Import):
                modules = [name.name for name in node.names]
            for module in modules:
                if module.startswith("lastiterate."):
                    yield file, module


def imports():
    """(importing entry, imported entry, file) for every import inside the package."""
    for file, module in imported():
        entry = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if entry not in ("__init__", "__main__"):
            yield entry, module.split(".")[1], file.name


def storey(entry):
    return next(i for i, entries in enumerate(STOREYS.values()) if entry in entries)


def test_every_module_has_a_storey():
    entries = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    entries |= {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert entries == set().union(*STOREYS.values())
    assert len(entries) == sum(map(len, STOREYS.values()))


def test_no_import_points_upwards():
    wrong = {each for each in imports() if storey(each[1]) > storey(each[0])}
    assert not wrong


def test_no_imports_are_circular():
    known = {entry: set() for entry in set().union(*STOREYS.values())}
    for entry, other, _ in imports():
        if entry != other and (entry, other) not in LOADED_LATER:
            known[entry].add(other)
    TopologicalSorter(known).prepare()  # a CycleError names the circle


@pytest.mark.parametrize("one, other", STRANGERS)
def test_strangers_do_not_know_each_other(one, other):
    pairs = {(a, b) for a, b, _ in imports()}
    assert (one, other) not in pairs
    assert (other, one) not in pairs


class TestTheOracleDoesNotKnowWhatItIsToCheck:
    def test_audits(self):
        """Only the search, which divides the two, and the audited trainers themselves may."""
        proved = {"shifts", "bounds", "accounting", "train", "certificate"}
        knowing = {file for entry, other, file in imports() if entry == "audit" and other in proved}
        assert knowing == {"exact.py", "certified_trainers.py"}

    def test_lower_bounds(self):
        """Records, conditions and quantities of a run are no evaluations; one file lists all."""
        known = {
            (file.name, module)
            for file, module in imported()
            if file.parent.name == "lower_bounds" and module.split(".")[1] in ("shifts", "bounds")
        }
        records = {f"lastiterate.bounds.{name}" for name in ("bound", "conditions", "quantities")}
        assert {file for file, module in known if module not in records} == {"catalogue.py"}


def kinds_asked_for(tree):
    """(name, line) of every class that `isinstance` or a pattern tells others from."""
    for node in ast.walk(tree):
        asked = []
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("isinstance", "issubclass"):
                asked = node.args[1:]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            of_type = [isinstance(side, ast.Call) and side.func for side in sides]
            asked = sides if any(getattr(of, "id", None) == "type" for of in of_type) else []
        for within in asked:
            for part in ast.walk(within):
                name = getattr(part, "id", getattr(part, "attr", None))
                if name is not None:
                    yield name, node.lineno


def descendants(kind):
    return {kind}.union(*map(descendants, kind.__subclasses__()))


def test_nobody_asks_what_kind_a_batch_rule_or_an_objective_is():
    """They say themselves what has to be known of them."""
    kinds = {kind.__name__ for base in (BatchRule, Objective) for kind in descendants(base)}
    assert kinds > {kind.__name__ for kind in RULES.values()}
    own = [PACKAGE / "run", PACKAGE / "train" / "objectives.py"]
    asked = {
        (str(file.relative_to(PACKAGE)), line, name)
        for file, tree in parsed().items()
        if not any(file.is_relative_to(home) for home in own)
        for name, line in kinds_asked_for(tree)
        if name in kinds
    }
    assert not asked


def test_one_place_warns():
    """One helper finds the line of the caller, so that no depth of calls is counted by hand."""
    warning = {
        file.relative_to(PACKAGE).as_posix()
        for file, tree in parsed().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "warnings.warn"
    }
    assert warning == {"errors.py"}


class TestPublicNames:
    def test_are_these(self):
        assert set(lastiterate.__all__) == {
            "BalancedSampled", "Ball", "BallsAndBins", "BallsAndBinsEachEpoch", "CATALOGUE",
            "Cyclic", "ExponentialAverage", "FixedOrder",
            "FullBatch", "GaussianProfile", "InvalidParameter", "LastIterateError", "Ledger",
            "Loss", "NoBoundApplies", "PoissonSampled", "PrivacyProfile", "PrivacyReport",
            "SampledWithoutReplacement",
            "ShuffledBlocksEachEpoch", "ShuffledBlocksOnce", "ShuffledEachEpoch",
            "ShuffledOnce", "TailAverage", "TrainingRun", "Unbounded", "Unlearning",
            "UnreachableTarget",
            "__version__",
            "account", "calibrate", "compose", "from_pld", "langevin", "load", "optimal_shifts",
            "plan", "save", "unlearning", "verify",
        }  # fmt: skip

    def test_every_batch_rule_is_one(self):
        kinds = [kind for kind in RULES.values() if kind.__module__.startswith("lastiterate.")]
        assert kinds
        assert all(getattr(lastiterate, kind.__name__) is kind for kind in kinds)

    def test_all_exist_and_are_documented(self):
        for name in lastiterate.__all__:
            value = getattr(lastiterate, name)
            assert value is not None
            if callable(value):
                assert value.__doc__, name

    @pytest.mark.parametrize("package", [lastiterate, profile], ids=lambda one: one.__name__)
    def test_type_checkers_see_the_same_names(self, package):
        tree = ast.parse(Path(package.__file__).read_text())
        block = next(node for node in tree.body if isinstance(node, ast.If))
        seen = {
            alias.asname: node.module  # "name as name" is how a stub exports
            for node in block.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        modules = package._MODULE_OF.items()
        assert seen == {name: f"{package.__name__}.{module}" for name, module in modules}

    def test_every_kind_of_profile_is_in_one_place(self):
        kinds = {getattr(profile, name) for name in profile.__all__}
        assert all(issubclass(kind, lastiterate.PrivacyProfile) for kind in kinds)
        assert {kind.__name__ for kind in kinds} == set(profile.__all__) == set(dir(profile))
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            _ = profile.nonsense

    def test_unknown_names_are_refused(self):
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            _ = lastiterate.nonsense


HEAVY = ["sklearn", "torch", "dask", "matplotlib", "fastapi", "dp_accounting", "rich", "scipy"]


def loaded_by(code, among=HEAVY):
    found = f"import sys; {code}; print(*[m for m in {among} if m in sys.modules], file=sys.stderr)"
    command = [sys.executable, "-c", found]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return said.splitlines()[-1].split()  # a command may say more on the way


RUN = [
    "--examples", "60000", "--batch-size", "1500", "--epochs", "2", "--step-size", "0.05",
    "--noise-std", "0.01", "--sensitivity", "10", "--smoothness", "32.502",
    "--strong-convexity", "0.002", "--adjacency", "replace", "--batches",
]  # fmt: skip
SLOW_TO_LOAD = ["dp_accounting", "scipy.optimize", "scipy.signal", "scipy.stats"]


def command(*arguments):
    return f"from lastiterate.cli import main; assert main({list(arguments)}) == 0"


def test_describing_a_run_and_help_load_nothing_heavy():
    helps = (command(*words, "--help") for words in ([], ["account"], ["train"]))
    described = "import lastiterate as li; li.Cyclic(10, 1); li.TrainingRun; li.Loss()"
    assert loaded_by("; ".join([described, *helps])) == []


def test_accounting_for_public_or_shuffled_orders_loads_nothing_slow():
    """And functions stay functions, whatever was imported first."""
    among = [*SLOW_TO_LOAD, "sklearn", "matplotlib"]
    rules = ("cyclic", "shuffled-once", "shuffled-each-epoch")
    imported = "import lastiterate.calibration, lastiterate as li; assert callable(li.account)"
    commands = [imported, *(command("account", *RUN, rule) for rule in rules)]
    assert loaded_by("; ".join(commands), among) == []


def test_the_version_is_that_of_the_distribution():
    from importlib.metadata import version

    assert version("lastiterate") == lastiterate.__version__


# Folders of tests for what is outside the package, or made for tests.
OTHER_TESTS = {"benchmarks", "browser", "docs", "notebooks", "reference"}


def test_tests_mirror_the_package():
    tests = Path(__file__).parent
    tested = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")}
    folders = {path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py")}
    assert {path for path in tested if path.split("/")[0] not in OTHER_TESTS} <= folders
    assert {path.split("/")[0] for path in folders} <= {path.split("/")[0] for path in tested}
