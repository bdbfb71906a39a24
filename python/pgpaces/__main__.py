"""`python -m pgpaces` is the command."""

from pgpaces.cli.main import main

main()
