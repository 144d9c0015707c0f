"""Commands that find mistakes in files, backends and machine."""
