"""`python -m holonomix`."""

from holonomix.cli import main

if __name__ == "__main__":
    main()
