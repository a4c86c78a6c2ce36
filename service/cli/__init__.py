"""The command door: parse, call one function, print."""
