"""Entries for the Differential Privacy Deployments Registry, against its schema as data."""

import datetime

import pytest

import lastiterate as li
from lastiterate.report.yaml_text import Blank, yaml_text
from tests.report.kinds import KINDS

yaml = pytest.importorskip("yaml")

TEXT, NUMBER, COUNT, DATE = "text", "number", "count", "date"


def one_of(*words):
    return set(words)


# Field: (its kind, whether it is required); a mapping has fields of its own, a list one kind.
# The schema of the registry's data in 2026; fields that an entry of ours never has are left out.
SCHEMA = {
    "url_slug": (TEXT, True),
    "deployment": (
        {
            "basic": (
                {
                    "name": (TEXT, True),
                    "data_curators": (
                        [
                            {
                                "data_curator_name": (TEXT, True),
                                "data_curator_type": (
                                    one_of("Government", "Industry", "Nonprofit"),
                                    True,
                                ),
                            }
                        ],
                        True,
                    ),
                    "description": (TEXT, True),
                    "intended_use": (TEXT, True),
                    "data_product_type": (
                        one_of(
                            "Summary statistics",
                            "Machine learning model",
                            "Dataset",
                            "Synthetic data",
                            "Interactive API",
                            "SQL queries",
                        ),
                        True,
                    ),
                    "data_product_region": (TEXT, True),
                    "data_product_sector": (
                        one_of(
                            "Technology", "Healthcare", "Education", "Government", "Energy",
                            "Finance",
                        ),
                        False,
                    ),
                    "publication_date": (DATE, True),
                },
                True,
            ),
            "dp_variant": (
                {
                    "variant_name": (
                        one_of(
                            "Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP",
                            "Custom",
                        ),
                        False,
                    ),
                    "data_domain": (TEXT, False),
                    "unprotected_quantities": (TEXT, False),
                },
                False,
            ),
            "privacy_loss": (
                {
                    "privacy_unit": (TEXT, False),
                    "privacy_unit_details": (TEXT, False),
                    "number_of_privacy_units": (COUNT, False),
                    "privacy_parameters": (
                        {
                            "epsilon": (NUMBER, False),
                            "delta": (NUMBER, False),
                            "rho": (NUMBER, False),
                        },
                        False,
                    ),
                    "privacy_parameters_details": (TEXT, False),
                },
                False,
            ),
            "deployment_model": (
                {
                    "model_name": (
                        one_of("Local", "Central", "Shuffle", "Federated", "Varies"),
                        False,
                    ),
                    "model_name_details": (TEXT, False),
                    "trust_assumptions": (TEXT, False),
                    "actors": (TEXT, False),
                    "release_type": (one_of("One release", "Many releases"), False),
                    "release_type_details": (TEXT, False),
                    "data_source_type": (one_of("Static", "Dynamic"), False),
                    "data_source_type_details": (TEXT, False),
                    "access_type": (one_of("Interactive", "Non-interactive"), False),
                    "access_type_details": (TEXT, False),
                },
                False,
            ),
            "implementation": (
                {
                    "preprocessing_and_hyperparameter_tuning": (TEXT, False),
                    "mechanisms": (TEXT, False),
                    "composition": (TEXT, False),
                    "post_processing": (TEXT, False),
                    "justification": (TEXT, False),
                    "utility": (TEXT, False),
                    "additional_information": (TEXT, False),
                },
                False,
            ),
            "administrative": (
                {
                    "status": (one_of("Draft", "Pending", "Approved"), True),
                    "registry_authors": ([TEXT], True),
                    "tier": ({1, 2, 3}, True),
                },
                True,
            ),
        },
        True,
    ),
}  # fmt: skip


def faults(value, kind, where=""):
    """Where a value is not what the schema says."""
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            return [f"{where} is no mapping"]
        found = [f"{where}.{name} is missing" for name, (_, must) in kind.items()
                 if must and name not in value]  # fmt: skip
        found += [f"{where}.{name} is unknown" for name in value if name not in kind]
        for name in set(value) & set(kind):
            found += faults(value[name], kind[name][0], f"{where}.{name}")
        return found
    if isinstance(kind, list):
        if not isinstance(value, list) or not value:
            return [f"{where} is no list of some"]
        return [fault for one in value for fault in faults(one, kind[0], where)]
    if isinstance(kind, set):
        return [] if value in kind and type(value) in {type(k) for k in kind} else [where]
    if kind == DATE:
        try:
            datetime.date.fromisoformat(value)
        except (TypeError, ValueError):
            return [f"{where} is no date in quotes"]
        return []
    right = {
        TEXT: isinstance(value, str) and value != "",
        NUMBER: isinstance(value, float),
        COUNT: type(value) is int,
    }[kind]
    return [] if right else [f"{where} is no {kind}: {value!r}"]


DETAILS = {
    "name": "Income: yes, or no?",
    "curator": 'The "Office" # of statistics\n',
    "curator_type": "Government",
    "intended_use": "null",
    "region": "NO",
    "sector": "Finance",
    "publication_date": "2026-05-01",
    "author": "1.0",
    "preprocessing": "- none\n- at all",
    "justification": "é\u2028 𝛿 \x07 \\",
    "utility": "{a: b}",
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_report_is_valid(kind):
    for details in (None, DETAILS):
        entry = KINDS[kind].report.statement(delta=1e-5, format="registry", details=details)
        assert faults(yaml.safe_load(entry), SCHEMA) == []


def report():
    run = li.TrainingRun.from_dp_sgd(
        examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0
    )
    return li.account(run)


def test_says_what_the_report_says():
    entry = yaml.safe_load(report().statement(delta=1e-6, format="registry"))["deployment"]
    loss = entry["privacy_loss"]
    assert loss["privacy_parameters"]["delta"] == 1e-6
    exact = report().epsilon(1e-6)
    assert exact <= loss["privacy_parameters"]["epsilon"] <= exact + 1e-3
    assert loss["number_of_privacy_units"] == 1_000
    assert report().bound in entry["implementation"]["composition"]
    assert entry["administrative"]["status"] == "Draft"


def test_words_stay_words():
    entry = report().statement(format="registry", details=DETAILS)
    read = yaml.safe_load(entry)["deployment"]
    assert read["basic"]["name"] == DETAILS["name"]
    assert read["basic"]["data_curators"][0]["data_curator_name"] == DETAILS["curator"]
    assert read["basic"]["intended_use"] == "null"
    assert read["basic"]["data_product_region"] == "NO"
    assert read["administrative"]["registry_authors"] == ["1.0"]
    assert read["implementation"]["justification"] == DETAILS["justification"]
    assert "# fill in" not in entry.replace("privacy_unit", "")


def test_blanks_are_marked():
    lines = report().statement(format="registry").splitlines()
    marked = {line.split(":")[0].strip(" -") for line in lines if line.endswith("# fill in")}
    assert {"intended_use", "publication_date", "data_curator_type", "utility"} <= marked
    assert not marked & {"epsilon", "delta", "composition", "mechanisms"}


def test_what_is_refused():
    with pytest.raises(li.InvalidParameter, match="details must be some of"):
        report().statement(format="registry", details={"epsilon": "0.1"})
    with pytest.raises(li.InvalidParameter, match="details must be given for"):
        report().statement(details=DETAILS)


class TestFaults:
    """The checker itself: what is wrong is found."""

    def test_each(self):
        good = yaml.safe_load(report().statement(format="registry"))
        for change in (
            lambda e: e.pop("url_slug"),
            lambda e: e.update(more="1"),
            lambda e: e["deployment"]["basic"].update(publication_date=datetime.date.today()),
            lambda e: e["deployment"]["basic"].update(data_curators=[]),
            lambda e: e["deployment"]["privacy_loss"]["privacy_parameters"].update(epsilon="1e-3"),
            lambda e: e["deployment"]["administrative"].update(tier=True),
        ):
            bad = yaml.safe_load(yaml.safe_dump(good))
            change(bad)
            assert faults(bad, SCHEMA)


@pytest.mark.parametrize(
    "value",
    [1e-10, 1.0, -2.5e300, 3, True, False, None, "", "yes", "2026-01-01", "a: b", "'", "x" * 300,
     [1, "2", 3.0], [], {}, [{"a": 1, "b": ["c"]}], {"no": {"1": "x"}}, "\t\x00\x85\ufeff"],
)  # fmt: skip
def test_yaml_gives_back_what_was_written(value):
    assert yaml.safe_load(yaml_text({"key": value, "last": 1})) == {"key": value, "last": 1}


def test_a_blank_is_its_text():
    assert yaml_text({"a": Blank("b # c")}) == 'a: "b # c"  # fill in\n'
    for bad in (float("nan"), float("inf"), object()):
        with pytest.raises(li.InvalidParameter, match="value must be"):
            yaml_text({"a": bad})
