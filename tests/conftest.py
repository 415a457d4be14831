"""Settings of all tests."""

import os

from hypothesis import settings

os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # before torch reads it: costs are of so many threads, here and in processes
settings.register_profile("untimed", deadline=None)  # a busy machine once failed a test that took 270 ms
settings.load_profile("untimed")
