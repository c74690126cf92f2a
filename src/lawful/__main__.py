"""`python -m lawful` is `lawful`."""

import sys

from lawful.cli import main

if __name__ == "__main__":
    sys.exit(main())
