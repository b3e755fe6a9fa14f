"""`python -m headrace` is the command `headrace`."""

from ._cli import main

main()
