"""Computes the cost of one call from the number of its output tokens. Used to compute holds."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.admission.output_forecast import Forecast
from gateway.domain.backend import Backend
from gateway.domain.money.price import Price
from gateway.domain.routing.route import NOTHING_ATTACHED, Attached
from gateway.domain.units import pico_to_nano_up


@dataclass(slots=True)
class CallCost:
    """Data of one call from which its maximum cost is computed."""

    price: Price
    expectation: Forecast
    backend: Backend
    counted: int
    """Input tokens by the gateway's own count, including attachments."""
    attached: Attached
    input_tokens: int
    """Maximum number of input tokens that the backend may count, without images and sound."""
    most: int
    """Maximum output tokens of the call, over all its answers."""
    cache_writes: bool
    """Whether the backend may charge for prompt cache writes."""
    media: bool
    """Whether the answer may be sound or images."""
    paid: int = 0
    """Number of output tokens for which the held money pays."""
    capped: bool = False

    def cost(self, output_tokens: int) -> int:
        """Maximum units that the call can cost with `output_tokens` output tokens."""
        price, attached = self.price, self.attached
        if attached is not NOTHING_ATTACHED:
            most = price.most(
                *(self.input_tokens, output_tokens),
                cache_writes=self.cache_writes,
                image_input=attached.image,
                audio_input=attached.audio,
                media_output=self.media,
            )
        else:
            most = price.most(self.input_tokens, output_tokens, cache_writes=self.cache_writes, media_output=self.media)
        return pico_to_nano_up(most)

    def affordable(self, units: int) -> int:
        """The number of output tokens that `units` pay for, after the input is paid. Negative if `units` do not
        even pay for the input.
        """
        begun = self.cost(0)
        thousand = self.cost(1000) - begun
        return (units - begun) * 1000 // max(thousand, 1)
