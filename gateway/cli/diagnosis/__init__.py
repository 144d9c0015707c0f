"""Commands that find mistakes in files, in backends and on the machine."""
