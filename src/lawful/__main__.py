"""`python -m lawful` runs the command line."""

import sys

from lawful.cli import main

if __name__ == "__main__":
    sys.exit(main())
