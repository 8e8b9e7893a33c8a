"""Running methods: `integrate`, `simulate`, `simulate_ensemble`, `explain`. Importing it, or `run.io`, loads no JAX."""
