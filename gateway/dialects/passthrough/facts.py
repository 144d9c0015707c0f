"""Facts about passed-through endpoints that other packages need."""

from gateway.domain.dialect import Dialect

FACTS = Dialect("openai_other", operation="openai_other", limits_output=False, opaque=True)
