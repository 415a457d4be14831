"""The version, which packaging, the native module and the command line read."""

__version__ = "0.1.0"
