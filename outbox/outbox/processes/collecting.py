"""Python's search for reference cycles, set for processes that are ours alone.

Relay and consumer make and drop thousands of objects a second that are in no cycle. The collector counts them all the
same, and walks through everything that was ever imported, each time while no thread runs.
"""

from __future__ import annotations

import gc

__all__ = ["set_start_aside"]

# So many more objects are made than dropped before the youngest are searched: a batch of claimed jobs, so that most
# have ended by then. More saves nothing, and what a cycle holds would wait for longer.
_YOUNGEST = 2000


def set_start_aside() -> None:
    """Have the collector leave alone what is there now, and look at the rest less often. For a command that has loaded
    what it needs, never for a host's process: it sees what becomes garbage later just as before.
    """
    gc.collect()
    gc.freeze()
    youngest, older, oldest = gc.get_threshold()
    if 0 < youngest < _YOUNGEST:  # who loads handlers may have chosen otherwise
        gc.set_threshold(_YOUNGEST, older, oldest)
