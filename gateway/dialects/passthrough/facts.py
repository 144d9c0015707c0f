"""How other packages treat what is passed through."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("openai_other", operation="openai_other", limits_output=False, opaque=True)
