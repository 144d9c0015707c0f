"""Operations on texts that packages share: concealing, cutting, making visible."""
