"""`python -m tests.attacks --seed 7 --minutes 10`."""

from .campaign import main

main()
