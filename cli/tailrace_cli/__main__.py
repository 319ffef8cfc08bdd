"""Lets `python -m tailrace_cli` do what `tailrace` does."""

from tailrace_cli.main import main

if __name__ == "__main__":
    main()
