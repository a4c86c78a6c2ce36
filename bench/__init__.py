"""The benchmark: what Tocsin does in a second, beside what the machine could do at most. Run it with `make bench`."""
