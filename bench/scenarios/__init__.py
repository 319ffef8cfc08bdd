"""One module for each benchmark name, each with ``run(lab, options) -> Outcome``."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command line asked for."""

    rounds: int
    """Interleaved rounds."""
    jobs: int | None
    """Jobs of a measured stretch; None takes the benchmark's own number."""
    quick: bool
    """A small run that shows that everything works; its figures mean nothing."""

    def number(self, full: int, quick: int) -> int:
        """Return `--jobs` if given, else one of the two by `--quick`."""
        return self.jobs if self.jobs is not None else self.scaled(full, quick)

    def scaled(self, full: int, quick: int) -> int:
        """Return one of the two by `--quick`: sizes that `--jobs` does not change."""
        return quick if self.quick else full
