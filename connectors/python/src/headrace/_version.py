"""The package's version, which is the binary's too."""

__version__ = "0.1.0"
