"""The one place where the version stands; packaging, the native module and the command line read it."""

__version__ = "0.1.0"
