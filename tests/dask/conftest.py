import pytest
from distributed import Client, LocalCluster


@pytest.fixture(scope="session")
def client():
    """Two workers in this process, which is enough wherever nobody is killed."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    with LocalCluster(processes=False, **settings) as cluster, Client(cluster) as connected:
        yield connected
