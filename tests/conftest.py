from hypothesis import HealthCheck, settings

# Deadlines time the machine, not the code; examples are derandomised so that a failure on
# one machine is a failure on all.
settings.register_profile(
    "default",
    deadline=None,
    derandomize=True,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("default")

# Importing it registers a batch rule, which other tests must not meet; one loads it on purpose.
collect_ignore = ["forwards_and_backwards.py"]
