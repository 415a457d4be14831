"""Settings of all tests."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)  # a busy machine once failed a test that took 270 ms
settings.load_profile("untimed")
