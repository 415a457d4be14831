"""Settings of all tests."""

import gc
import os

from hypothesis import settings

# Set before torch reads it. Costs depend on the thread count, here and in processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TRITON_INTERPRET", "1")  # kernels run on the CPU; read at the first import of triton
settings.register_profile("untimed", deadline=None)  # a busy machine once failed a test that took 270 ms
settings.load_profile("untimed")

gc.disable()  # what is imported stays: to walk through it again and again takes a quarter of the time of collection


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()
