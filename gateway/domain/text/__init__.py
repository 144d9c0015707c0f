"""Operations on texts that several packages use: concealing secrets, shortening, escaping control characters."""
