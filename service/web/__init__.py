"""The HTTP door: routes translate, they decide nothing."""
