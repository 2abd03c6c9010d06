"""`python -m outbox`: the same program as the `outbox` command."""

from outbox.cli.root import main

main()
