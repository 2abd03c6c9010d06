"""`python -m scale`, with the folder `tests` on the path."""

import sys

from scale.reads import main

sys.exit(main(sys.argv[1:]))
