"""The vocabulary: values and protocols that rooms share. Imports nothing of the house."""
