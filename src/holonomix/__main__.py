"""`python -m holonomix`."""

from holonomix.study.cli import main

if __name__ == "__main__":
    main()
