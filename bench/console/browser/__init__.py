"""The browser's side of the proof: runs in bench/.browser, where Tocsin's own dependencies are not installed."""
