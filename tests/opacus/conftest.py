"""What Opacus and torch say of themselves in every training is no failure."""

import pytest

_OTHERS = (
    "ignore:Secure RNG turned off:UserWarning",
    "ignore:Full backward hook is firing:UserWarning",
    "ignore:.*lr_scheduler.step\\(\\)` before:UserWarning",
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:optimizer_state_dict has:UserWarning",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if "opacus" in item.path.parts[-2]:
            for each in _OTHERS:
                item.add_marker(pytest.mark.filterwarnings(each))


@pytest.fixture(autouse=True)
def registered():
    """Every test begins with the loss of two classes stated."""
    import lastiterate.opacus as lo

    from .trainings import BINARY

    return lo.register(loss=BINARY)
