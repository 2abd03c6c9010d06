"""`python -m rehearse`, with the folder `tests` on the path."""

import sys

from rehearse.rehearsals import main

sys.exit(main(sys.argv[1:]))
