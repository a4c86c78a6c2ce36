"""The pure floor: what Tocsin's words mean and how it decides. No I/O, clock or randomness."""
