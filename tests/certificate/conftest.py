import pytest

from . import certificates as made


@pytest.fixture(scope="package")
def certificates():
    """Records of several kinds; not to be changed."""
    return made.certificates()
