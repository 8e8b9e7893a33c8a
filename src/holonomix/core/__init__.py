"""Types, statuses, errors and names that every layer uses. Importing it loads no JAX."""
