"""``python -m nmt_cli`` is the same as ``nmt``."""

from nmt_cli.cli import main

main()
