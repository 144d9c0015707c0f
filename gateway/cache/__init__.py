"""Known already? Answers found again, exactly or by meaning, and only for those who may see them."""
