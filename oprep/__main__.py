"""Run the command line as `python -m oprep`."""

from oprep.cli import main

if __name__ == "__main__":
    main()
