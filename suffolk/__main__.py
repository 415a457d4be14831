"""The ``suffolk`` command, also as ``python -m suffolk``. Ctrl-C ends it quietly even while its modules are imported."""

import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    try:
        from suffolk.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        print("suffolk: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
