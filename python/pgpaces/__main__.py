"""`python -m pgpaces` is the command."""

from pgpaces.cli.launch import main

main()
