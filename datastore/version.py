"""The version number. Packaging, the extension module and the command line read it."""

__version__ = "0.1.0"
