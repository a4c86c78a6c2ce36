"""The measurements, one file each; every one of them is a `measure` that notes its samples."""
