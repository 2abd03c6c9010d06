"""`outbox relay` with runways as long as their setting allows from the start: it is the relay that is measured, and not
how few hints it keeps at a broker where nobody takes them.
"""

from __future__ import annotations

import sys

from outbox.cli.root import main
from outbox_relay import lengths

if __name__ == "__main__":
    lengths.FLOOR = 1_000_000
    sys.argv = ["outbox", "relay"]
    main()
