"""Functions as data: traced programs are frozen, compared, evaluated with NumPy and analyzed."""
