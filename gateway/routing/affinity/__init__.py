"""Conversations that stay where their prefix is warm."""
