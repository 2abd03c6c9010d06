"""`python -m crash`, with the folder `tests` on the path."""

import sys

from crash.matrix import main

sys.exit(main(sys.argv[1:]))
