"""The console's proof: a full house, a real browser that steers it, and what every page takes and looks like."""
