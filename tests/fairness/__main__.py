"""`python -m fairness`, with the folder `tests` on the path."""

import sys

from fairness.claims import main

sys.exit(main(sys.argv[1:]))
