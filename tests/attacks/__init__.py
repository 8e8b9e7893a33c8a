"""Attacks on what the security page promises; `make attack SEED=... MINUTES=...` runs more of them."""
