"""The version of this release, from the installed distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    VERSION = version("tailrace")
except PackageNotFoundError:  # a source tree that is not installed
    VERSION = "0"
